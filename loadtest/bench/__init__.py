"""Benchmarks: `python -m loadtest bench --list` names them.

benchmarks.toml says what each measures; `contest` defines what a benchmark is, `runner` runs them in turns, and
`processes`, `builds` and `golang` start the programs. The module of a benchmark is imported on demand. Modules that run
inside a measured process import only what they measure.
"""
