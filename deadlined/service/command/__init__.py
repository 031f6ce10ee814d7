"""The command of `deadlined run`: where it listens, and its start, end and replacement."""
