"""The process that reports changed files, for `--reload`.

It is a process of its own because watchfiles uses threads: its parent forks, and a process with threads should not.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

# milliseconds between two checks that the parent still exists
_CHECK: Final = 1000

# the first byte of a message: what follows are changed files, one per line, or why nothing can be watched
CHANGED: Final = b"+"
FAILED: Final = b"!"

# bytes of a message; a socket takes it in one piece
LONGEST: Final = 4096


def watch(directories: list[str], end: socket.socket) -> None:
    """Send a message to `end` for each change of Python files in `directories`, until its peer or the parent is gone.
    For a forked process; ends it."""
    # the parent ends this process: a Ctrl-C, or a signal to all processes, must not look as if watching had failed
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    try:
        _watch(directories, end, parent)
    except Exception as error:
        with suppress(OSError):
            end.send(FAILED + f"{type(error).__name__}: {error}".encode()[:LONGEST])
    finally:
        os._exit(0)


def _watch(directories: list[str], end: socket.socket, parent: int) -> None:
    from watchfiles import PythonFilter, watch

    # the parent logs what has changed
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    end.send(CHANGED)
    for changes in watch(*directories, watch_filter=PythonFilter(), rust_timeout=_CHECK, yield_on_timeout=True):
        if os.getppid() != parent:
            return
        if changes:
            names = "\n".join(sorted({_short(path) for _, path in changes}))
            end.send(CHANGED + os.fsencode(names)[: LONGEST - 1])


def _short(path: str) -> str:
    """Return a path relative to the current directory, if it is in there, and that was not removed."""
    with suppress(ValueError, OSError):
        return str(Path(path).relative_to(Path.cwd()))
    return path
