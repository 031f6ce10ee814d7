"""Listening sockets: over TCP and at a path, with and without an event loop."""

from __future__ import annotations

import contextlib
import errno
import os
import socket as stdlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..runtime import checkpoint
from ..timing import sleep
from .errors import note_name
from .listener import Listener
from .names import AddressInfo, look_up, look_up_here, require_port
from .sockets import address_text, set_options
from .stale import remove_stale

# connections that wait to be accepted; a system that allows fewer takes its own limit
_MOST_WAITING = 0xFFFF


async def open_tcp_listeners(
    port: int, *, host: str | bytes | None = None, backlog: int | None = None, reuse_port: bool = False
) -> list[Listener]:
    """Listen on a TCP port, on every address that `host` resolves to.

    `host` None means all interfaces, over IPv4 and IPv6. With `port` 0 the kernel chooses one for each address.
    `backlog` None asks for as much as the kernel allows. `reuse_port` lets several processes share the port
    (SO_REUSEPORT); connections are spread over them on Linux, and on FreeBSD from Python 3.14 on. OSError if an address
    cannot be bound, with that as its `filename`; all others are closed then.
    """
    require_port(port)
    addresses = await look_up(host, port, stdlib.SOCK_STREAM, stdlib.AI_PASSIVE)
    listeners: list[Listener] = []
    try:
        for socket, address in sockets_for(addresses):
            listeners.append(_listen(socket, address, backlog, reuse_port))
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def sockets_for(addresses: Sequence[AddressInfo]) -> Iterator[tuple[stdlib.socket, Any]]:
    """Make a socket for each different result of `getaddrinfo`, and give it with its address. OSError if one cannot be
    made.

    Of a name that has several lines in /etc/hosts, an address may come once for each, and can be bound once only.
    An address of a family that the kernel does not support is skipped if another one is not: containers often resolve
    IPv6 addresses without supporting them.
    """
    given, unsupported = False, None
    for family, kind, proto, _, address in dict.fromkeys(addresses):
        try:
            socket = stdlib.socket(family, kind, proto)
        except OSError as error:
            if error.errno != errno.EAFNOSUPPORT:
                raise
            unsupported = error
        else:
            given = True
            yield socket, address
    if unsupported is not None and not given:
        raise unsupported


def bind(socket: stdlib.socket, address: Any, reuse_port: bool = False) -> None:
    """Bind with a listener's options: connections of an earlier listener may linger, and IPv6 excludes IPv4."""
    socket.setsockopt(stdlib.SOL_SOCKET, stdlib.SO_REUSEADDR, 1)
    if reuse_port:
        socket.setsockopt(stdlib.SOL_SOCKET, spreading_option() or stdlib.SO_REUSEPORT, 1)
    if socket.family == stdlib.AF_INET6:
        socket.setsockopt(stdlib.IPPROTO_IPV6, stdlib.IPV6_V6ONLY, 1)
    socket.bind(address)


def spreading_option() -> int | None:
    """Return the option with which the kernel spreads new connections over the sockets that share a port. None if the
    system has none: SO_REUSEPORT lets them share it there, and one of them gets all connections."""
    if sys.platform == "linux":
        return stdlib.SO_REUSEPORT
    # FreeBSD, from Python 3.14 on
    return getattr(stdlib, "SO_REUSEPORT_LB", None)


def listening_sockets(port: int, host: str | None, *, reuse_port: bool = False) -> list[stdlib.socket]:
    """Listen on every address of the host, without an event loop: its name is looked up in this thread. The caller has
    checked the port. Errors as `open_tcp_listeners`."""
    addresses = look_up_here(host, port, stdlib.SOCK_STREAM, stdlib.AI_PASSIVE)
    sockets: list[stdlib.socket] = []
    try:
        for socket, address in sockets_for(addresses):
            sockets.append(socket)
            _begin_to_listen(socket, address, None, reuse_port)
    except BaseException:
        for socket in sockets:
            socket.close()
        raise
    return sockets


def _listen(socket: stdlib.socket, address: Any, backlog: int | None, reuse_port: bool) -> Listener:
    try:
        _begin_to_listen(socket, address, backlog, reuse_port)
        return Listener(socket, has_options=True)
    except BaseException:
        socket.close()
        raise


def _begin_to_listen(socket: stdlib.socket, address: Any, backlog: int | None, reuse_port: bool) -> None:
    try:
        set_options(socket)
        bind(socket, address, reuse_port)
        _start_listening(socket, backlog)
    except OSError as error:
        # the kernel does not say which address it means
        error.filename = address_text(address)
        raise


def _start_listening(socket: stdlib.socket, backlog: int | None) -> None:
    socket.listen(_MOST_WAITING if backlog is None else backlog)
    socket.setblocking(False)


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
    `filename` is the path. ValueError for a path with a NUL, as abstract names have it.
    """
    await checkpoint()
    file = Path(os.fsdecode(path))
    for seconds in remove_stale(file):
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
    for seconds in remove_stale(file):
        time.sleep(seconds)
    return _listen_on_unix(file, backlog, mode, owner)


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
        _start_listening(socket, backlog)
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
