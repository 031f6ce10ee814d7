"""What the measured programs in Python share. Imports neither trio nor uvloop unless it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def loop_factory(host: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the event loop of `host`: "asyncio" or "uvloop"."""
    if host == "uvloop":
        import uvloop  # absent where uvloop is not a contestant

        return uvloop.new_event_loop
    return asyncio.new_event_loop


def announce(port: int) -> None:
    """Print where the server listens, as its first line of output."""
    print(f"listening on tcp://127.0.0.1:{port}", flush=True)
