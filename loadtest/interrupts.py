"""Ctrl-C before a command has begun. Imports as little as it can: it is loaded before all else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """End the process with INTERRUPTED, and no traceback, at Ctrl-C in this block, which loads what a command needs.
    No effect where SIGINT is ignored. For the main thread."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, _: FrameType | None) -> None:
    # an exception could be caught, or be ignored with a traceback, by the code that is being imported
    os._exit(INTERRUPTED)
