"""The host of asyncio, and of uvloop, which is one of asyncio's event loops."""

from __future__ import annotations

from .host import AsyncioHost, current_asyncio_host, started_asyncio_host

__all__ = ["AsyncioHost", "current_asyncio_host", "started_asyncio_host"]
