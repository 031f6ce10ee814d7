"""What the measured programs in Python share. Imports neither trio nor uvloop unless it is asked for."""

from __future__ import annotations

import asyncio
from importlib import import_module


def runner_of(host: str) -> asyncio.Runner:
    """Return what runs coroutines in an event loop of `host`: "asyncio" or "uvloop"."""
    return asyncio.Runner(loop_factory=import_module(host).new_event_loop)


def announce(port: int) -> None:
    """Print where the server listens, as its first line of output."""
    print(f"listening on tcp://127.0.0.1:{port}", flush=True)
