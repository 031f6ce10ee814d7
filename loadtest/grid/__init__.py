"""`python -m loadtest grid`: `check` against many servers, each with its defaults and with its best settings.

contestants.toml says who they are, and `contestants` starts and stops them; `served` is what the Python ones serve;
`run` checks them and keeps the results; `page` writes docs/grid.md from these; `command` is the command.
"""
