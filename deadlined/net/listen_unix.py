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
from functools import partial
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


def _listen_on_unix(
    file: Path, backlog: int | None, mode: int | None, owner: tuple[int, int] | None
) -> tuple[stdlib.socket, Callable[[], None]]:
    if "\0" in str(file):
        raise ValueError(f"{str(file)!r} is not the path of a file: abstract names cannot be listened on")
    socket = stdlib.socket(stdlib.AF_UNIX, stdlib.SOCK_STREAM)
    try:
        _bind_to_path(socket, file)
        return socket, _listen_at_path(socket, file, backlog, mode, owner)
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


def _listen_at_path(
    socket: stdlib.socket, file: Path, backlog: int | None, mode: int | None, owner: tuple[int, int] | None
) -> Callable[[], None]:
    unlink = partial(_unlink, file.absolute(), _identity(file))
    try:
        # until listen() the socket refuses connections
        if owner is not None:
            os.chown(file, *owner)
        if mode is not None:
            file.chmod(mode)
        start_listening(socket, backlog)
    except BaseException:
        unlink()
        raise
    return unlink


def _unlink(file: Path, identity: tuple[int, int]) -> None:
    """Remove `file` unless it was replaced. The socket must still be open: then no other file has its identity."""
    with contextlib.suppress(FileNotFoundError):
        if _identity(file) == identity:
            file.unlink()


def _identity(file: Path) -> tuple[int, int]:
    """Return device and inode."""
    found = file.lstat()
    return found.st_dev, found.st_ino
