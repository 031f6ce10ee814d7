"""Real applications, unchanged, in the real command, on every event loop that they know."""
