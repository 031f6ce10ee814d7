"""TLS: the context of a server, made from files, and how long these are valid."""
