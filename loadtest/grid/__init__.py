"""`python -m loadtest grid`: `check` against many servers, each with its defaults and with its best settings.

contestants.toml and configs/ say who they are, and `contestants` reads them; `served` is what the Python ones serve;
`starting` starts and stops them; `run` checks them and keeps the results; `page` writes docs/grid.md from these;
`command` is the command.
"""
