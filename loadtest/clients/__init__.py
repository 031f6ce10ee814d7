"""Clients that put servers under load; in C where Python would be slower than the servers."""
