"""The process that reports changed files for `--reload`, and the parent's end of it.

It is a process of its own because watchfiles uses threads: its parent forks, and a process with threads should not.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Final

from ..config import ServeConfig
from ..errors import FAILED, WRONG_ARGUMENTS, StartupError
from ..process.parent_death import fork

# milliseconds between two checks that the parent still exists
_CHECK: Final = 1000

# the first byte of a message: what follows are changed files, one per line, or why nothing can be watched
_CHANGED: Final = b"+"
_BROKEN: Final = b"!"

# bytes of a message; a pipe takes it in one piece
_LONGEST: Final = 4096


class Watcher:
    """A process that watches `directories`: for the parent, which calls `start` once, then `receive` whenever
    `messages` can be read, and `end`."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = directories
        self.messages, self._theirs = Pipe(duplex=False)
        # 0 if it was not started
        self._pid = 0

    def start(self, unneeded: Iterable[socket.socket]) -> None:
        """Fork the process, which closes the `unneeded` sockets. StartupError if the system refuses."""
        pid = fork_here()
        if not pid:
            signal.set_wakeup_fd(-1)
            for found in unneeded:
                found.close()
            self.messages.close()
            _report_changes(self._directories, self._theirs)
        self._pid = pid
        self._theirs.close()

    def receive(self) -> list[str]:
        """Return the files that have changed; none in the first message, which says that files are watched.
        StartupError if they cannot be watched."""
        message = b""
        with suppress(EOFError):
            message = self.messages.recv_bytes()
        if message[:1] != _CHANGED:
            why = message[1:].decode(errors="replace") or "the process that watches has ended"
            raise StartupError(f"--reload: files cannot be watched: {why}", FAILED)
        return os.fsdecode(message[1:]).splitlines()

    def release(self) -> None:
        """Close the pipe, also in a forked process."""
        self.messages.close()
        self._theirs.close()

    def end(self) -> None:
        """End the process, and close the pipe."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self.release()


def directories_of(config: ServeConfig) -> list[str]:
    """Return what to watch. StartupError if it is not there, or watchfiles is not."""
    if find_spec("watchfiles") is None:
        hint = "pip install 'deadlined[reload]'"
        raise StartupError(f"--reload: watchfiles is not installed; {hint}", WRONG_ARGUMENTS)
    directories = list(config.reload_dir) or [config.app_dir or "."]
    for directory in directories:
        if not Path(directory).is_dir():
            raise StartupError(f"--reload-dir {directory}: there is no such directory", WRONG_ARGUMENTS)
    return directories


def fork_here() -> int:
    """Fork a process of `--reload`, as `parent_death.fork` does. StartupError if the system refuses."""
    try:
        return fork()
    except OSError as error:
        raise StartupError(f"--reload: cannot start a process: {error.strerror}", FAILED) from None


def _report_changes(directories: Sequence[str], end: Connection) -> None:
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
            end.send_bytes(_BROKEN + f"{type(error).__name__}: {error}".encode()[: _LONGEST - 1])
    finally:
        os._exit(0)


def _watch(directories: Sequence[str], end: Connection, parent: int) -> None:
    from watchfiles import PythonFilter, watch

    # the parent logs what has changed
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    end.send_bytes(_CHANGED)
    for changes in watch(*directories, watch_filter=PythonFilter(), rust_timeout=_CHECK, yield_on_timeout=True):
        if os.getppid() != parent:
            return
        if changes:
            names = "\n".join(sorted({_short(path) for _, path in changes}))
            end.send_bytes(_CHANGED + os.fsencode(names)[: _LONGEST - 1])


def _short(path: str) -> str:
    """Return a path relative to the current directory, if that still exists and the path is in it."""
    with suppress(ValueError, OSError):
        return str(Path(path).relative_to(Path.cwd()))
    return path
