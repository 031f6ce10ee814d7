"""`python -m loadtest http URL --rate R`: requests at their times, whatever the server does; latency from these times.

The modules from the bottom up: `client` asks at the times of a schedule and counts, `run` starts the
processes, adds their counts, says what holds, and searches, `command` is the command.
"""
