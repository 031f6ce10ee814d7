"""Listening on unix sockets, with and without an event loop.

Facts      A socket leaves its file behind, and nobody can bind to the path of a file. Connecting to a unix socket
           succeeds or fails at once. If the queue of the listener is full, Linux says EAGAIN; macOS and the BSDs
           refuse, as they do where nobody listens.
Hazard     After a crash a server cannot start again. One that removes any file in its way takes the place of a server
           that is only busy.
Answer     The file is removed if a connection is refused: on Linux once, on other systems several times in a tenth of a
           second. The caller does the waiting, in an event loop or without one.
Cost       That time, where the file is stale. Elsewhere than on Linux, the file of a server whose queue stays full for
           longer is removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket as stdlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ..runtime import checkpoint
from ..timing import sleep
from .errors import note_name
from .listen import start_listening
from .listener import Listener

# seconds between two attempts to connect, where a refusal does not say that nobody listens
_WAITS: Final = (0.01, 0.03, 0.06)


async def open_unix_listener(
    path: str | bytes | os.PathLike[str],
    *,
    backlog: int | None = None,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
) -> Listener:
    """Listen on a unix socket. A socket file on which no process listens is replaced. macOS and the BSDs refuse
    connections also while a queue is full: there it is replaced once it has refused them for a tenth of a second.

    `mode` sets the file's permission bits before any client can connect (0o660: owner and group may); None leaves them
    to the umask. `owner` sets the file's user and group, by number, -1 to leave one as it is. Closing the listener
    removes the file unless it was replaced.
    OSError with EADDRINUSE if another process listens there; FileExistsError if the path is not a socket; their
    `filename` is the path. ValueError for a path with a NUL, so for an abstract name.
    """
    await checkpoint()
    file = Path(os.fsdecode(path))
    for seconds in _remove_stale(file):
        await sleep(seconds)
    socket, unlink = _listen_on_unix(file, backlog, mode, owner)
    try:
        return Listener(socket, unlink)
    except BaseException:
        unlink()
        socket.close()
        raise


def listening_unix_socket(
    path: str | Path, *, backlog: int | None = None, mode: int | None = None, owner: tuple[int, int] | None = None
) -> tuple[stdlib.socket, Callable[[], None]]:
    """Listen as `open_unix_listener` does, without an event loop. Return the socket, and a function that removes its
    file unless it was replaced; it must be called before the socket is closed."""
    file = Path(path)
    for seconds in _remove_stale(file):
        time.sleep(seconds)
    return _listen_on_unix(file, backlog, mode, owner)


class BoundUnixSocket:
    """A unix socket at a path, as `listening_unix_socket` makes it, but for listen(): connections are refused until
    `start_listening`."""

    def __init__(self, path: str | Path, *, mode: int | None = None, owner: tuple[int, int] | None = None) -> None:
        file = Path(path)
        for seconds in _remove_stale(file):
            time.sleep(seconds)
        self.socket, self._file = _bound_unix_socket(file, mode, owner)

    def start_listening(self) -> None:
        """Accept connections from now on. OSError with EADDRINUSE if another process has taken the path: until now the
        file was one on which no process listens."""
        if not self._file.is_there():
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        start_listening(self.socket)

    def unlink(self) -> None:
        """Remove the file unless it was replaced. Must be called before the socket is closed."""
        self._file.unlink()


def _remove_stale(file: Path) -> Iterator[float]:
    """Remove `file` if it is a socket on which no process listens. Each item is a number of seconds that the caller
    must wait before it asks for the next one; it must go on to the end."""
    if not file.is_socket():
        return
    for seconds in () if sys.platform == "linux" else _WAITS:
        if _answers(file):
            return
        yield seconds
    if not _answers(file):
        with contextlib.suppress(FileNotFoundError):
            file.unlink()


def _answers(file: Path) -> bool:
    """Return True if a process listens on this socket, or if that cannot be told."""
    with stdlib.socket(stdlib.AF_UNIX, stdlib.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(file))
        except ConnectionRefusedError:
            return False
        except OSError:
            pass
        return True


class _File:
    """The file of a unix socket that is open: no other file has its identity meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._identity = _identity(path)

    def is_there(self) -> bool:
        """Return False if the file was removed or replaced."""
        try:
            return _identity(self._path) == self._identity
        except FileNotFoundError:
            return False

    def unlink(self) -> None:
        """Remove the file unless it was replaced."""
        with contextlib.suppress(FileNotFoundError):
            if self.is_there():
                self._path.unlink()


def _listen_on_unix(
    path: Path, backlog: int | None, mode: int | None, owner: tuple[int, int] | None
) -> tuple[stdlib.socket, Callable[[], None]]:
    socket, file = _bound_unix_socket(path, mode, owner)
    try:
        start_listening(socket, backlog)
    except BaseException:
        file.unlink()
        socket.close()
        raise
    return socket, file.unlink


def _bound_unix_socket(path: Path, mode: int | None, owner: tuple[int, int] | None) -> tuple[stdlib.socket, _File]:
    if "\0" in str(path):
        raise ValueError(f"{str(path)!r} is not the path of a file: abstract names cannot be listened on")
    socket = stdlib.socket(stdlib.AF_UNIX, stdlib.SOCK_STREAM)
    try:
        socket.setblocking(False)
        _bind_to_path(socket, path)
        return socket, _file_of(path, mode, owner)
    except BaseException:
        socket.close()
        raise


def _bind_to_path(socket: stdlib.socket, file: Path) -> None:
    try:
        socket.bind(str(file))
    except OSError as error:
        if error.errno == errno.EADDRINUSE and not file.is_socket():
            raise FileExistsError(errno.EEXIST, "the path exists and is not a socket", str(file)) from error
        note_name(error, str(file))
        raise


def _file_of(path: Path, mode: int | None, owner: tuple[int, int] | None) -> _File:
    file = _File(path)
    try:
        # until listen() the socket refuses connections
        if owner is not None:
            os.chown(path, *owner)
        if mode is not None:
            path.chmod(mode)
    except BaseException:
        file.unlink()
        raise
    return file


def _identity(file: Path) -> tuple[int, int]:
    """Return device and inode."""
    found = file.lstat()
    return found.st_dev, found.st_ino
