"""`python -m loadtest http URL --rate R`: requests at their times, whatever the server does; latency from these times.

The modules from the bottom up: `schedule` says when, `client` asks and counts, `condition` is what must hold, `result`
adds the clients' counts, `run` starts the processes and searches, `command` is the command.
"""
