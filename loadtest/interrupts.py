"""Ctrl-C and what is not installed, before a command has begun. Imports as little as it can: it is loaded before all
else."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130

# what the extra `loadtest` brings, by the names that are imported
_EXTRA = {"rich", "hdrh", "httptools", "jinja2", "locust", "gevent", "psutil"}


@contextmanager
def loading() -> Iterator[None]:
    """Load in this block what a command needs. If the extra is not installed, say so, and exit with 2. At Ctrl-C end
    the process with INTERRUPTED, and no traceback, unless SIGINT is ignored. For the main thread."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if is_ours:
            signal.signal(signal.SIGINT, _end)
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        print(f"Error: {error.name} is not installed: pip install 'deadlined[loadtest]'", file=sys.stderr)
        sys.exit(2)
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, _: FrameType | None) -> None:
    # an exception could be caught, or be ignored with a traceback, by the code that is being imported
    os._exit(INTERRUPTED)
