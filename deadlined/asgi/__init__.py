"""ASGI 3 applications on the HTTP server: http, websocket and lifespan, and the `deadlined` extension."""

from __future__ import annotations

from .handler import App, AsgiHandler, DeadlinesExtension, check_root_path
from .lifespan import Lifespan, LifespanFailed

__all__ = [
    "App",
    "AsgiHandler",
    "DeadlinesExtension",
    "Lifespan",
    "LifespanFailed",
    "check_root_path",
]
