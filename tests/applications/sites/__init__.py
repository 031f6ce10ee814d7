"""The applications that are served: each module is a program as people write it for any ASGI server."""
