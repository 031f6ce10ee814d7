"""How exact timers are: lateness by driver and situation, and the clocks themselves; `python -m loadtest precision`."""
