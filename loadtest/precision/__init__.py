"""The precision of timers: lateness by driver and situation, and the clocks. `python -m loadtest precision`."""
