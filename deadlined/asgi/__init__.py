"""ASGI 3 applications on the HTTP server: http, websocket and lifespan, and the `deadlined` extension."""

from __future__ import annotations

from .handler import App, AsgiHandler, DeadlinesExtension, check_root_path
from .lifespan import Lifespan, LifespanFailed
from .options import ServerOptions
from .server import AsgiServer, serve

__all__ = [
    "App",
    "AsgiHandler",
    "AsgiServer",
    "DeadlinesExtension",
    "Lifespan",
    "LifespanFailed",
    "ServerOptions",
    "check_root_path",
    "serve",
]
