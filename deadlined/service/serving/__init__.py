"""One serving process: its roles, its start, its drain, its end and its exit code."""
