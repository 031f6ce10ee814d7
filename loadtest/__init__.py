"""Measurements of deadlined and attacks on it: `python -m loadtest --help`.

Everything is bounded in time and in connections and stays on 127.0.0.1. Only public names of the package are used, so
that users get what is measured. Absolute figures of one machine say little, so every command that compares prints both
sides of one run and their ratio.
"""
