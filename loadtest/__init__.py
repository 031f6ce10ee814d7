"""Measurements and attacks that run against the real thing: `python -m loadtest --help`.

Everything is bounded in time and in connections and stays on 127.0.0.1. Of the package only public names are used, so
that what is measured is what a user gets. Figures of one machine are of little worth: every command that
compares prints both sides of one run and their ratio.
"""
