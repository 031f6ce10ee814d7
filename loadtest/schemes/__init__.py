"""Timer schemes measured: the table of Varghese and Lauck (SOSP 1987) by experiment, `python -m loadtest schemes`.

Every queue of `deadlined.timers`, and two heaps of other people's as baselines, in operations and in workloads that
name their use, from ten timers to a million.
"""
