"""Listening: the sockets, and why a place is refused."""
