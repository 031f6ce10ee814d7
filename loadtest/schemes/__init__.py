"""Measurements of timer schemes, after the table of Varghese and Lauck (SOSP 1987): `python -m loadtest bench schemes`.

Every queue of `deadlined.timers`, and asyncio's method as a baseline, in single operations and in workloads, from ten
timers to a million. `benchmark` is what the runner of all benchmarks measures, `child` the measured process.
"""
