"""Listening sockets that survive the errors of accept(2) and end a wait at their deadline.

Facts      accept(2) reports the errors of the connection it would have returned (ECONNABORTED and the network's own),
           and fails with EMFILE, ENFILE, ENOBUFS or ENOMEM while the process or the machine lacks resources.
Hazard     A server that stops at either can be taken down by one client. One that retries at once burns a core, because
           the waiting connection keeps the listener ready. One that waits for an edge sleeps for ever, because that
           connection's edge is over.
Answer     An error of one connection is skipped. After a shortage, accept waits 5 ms, doubled up to 1 s, as Go does.
Cost       Up to a second of delay for the first connection after a shortage.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket as stdlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from ..runtime import checkpoint, current_host
from ..timing import sleep
from .conn import Conn
from .errors import broken_error, close_socket, note_name
from .names import AddressInfo, look_up, look_up_here, require_port
from .side import Side, address_text, require_open
from .sockets import listens, require_plain, set_options
from .stale import remove_stale

# seconds; Go's net/http waits 5 ms and doubles up to 1 s
_BACKOFF_FIRST = 0.005
_BACKOFF_MOST = 1.0

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

# the connection that was to be accepted is gone or was refused by a firewall (accept(2), "Error handling")
_SKIPPED = frozenset(
    getattr(errno, name)
    for name in (
        "ECONNABORTED",
        "EPERM",
        "EPROTO",
        "ENETDOWN",
        "ENOPROTOOPT",
        "EHOSTDOWN",
        "ENONET",
        "EHOSTUNREACH",
        "EOPNOTSUPP",
        "ENETUNREACH",
        "ETIMEDOUT",
    )
    if hasattr(errno, name)
)

# on Linux an accepted socket has the options that the listening one had when the connection arrived; other systems do
# not promise it
_INHERITS = sys.platform == "linux"

_log = logging.getLogger("deadlined.net")


class Listener(trio.abc.Listener[Conn]):
    """A listening socket; `accept` gives a `Conn`. Make it with `open_tcp_listeners`, `open_unix_listener` or
    `Listener.from_socket`."""

    def __init__(
        self, socket: stdlib.socket, unlink: Callable[[], object] | None = None, has_options: bool = False
    ) -> None:
        self._host = current_host()
        socket.setblocking(False)
        self._desc = self._host.open(socket.fileno())
        self._socket = socket
        self._accepting = Side("accept", self._desc.read, self._host)
        # removes the file of a unix socket
        self._unlink = unlink
        # the options of a `Conn` were set before listen()
        self._has_options = has_options and _INHERITS

    @classmethod
    def from_socket(cls, socket: stdlib.socket) -> Listener:
        """Take over a listening SOCK_STREAM socket (from systemd, or bound by the caller). ValueError for any other
        socket, TypeError for one of an event loop or with TLS. macOS and OpenBSD cannot tell whether a socket listens:
        `accept` fails there if it does not."""
        require_plain(socket, "Listener")
        if not listens(socket):
            raise ValueError("a Listener needs a SOCK_STREAM socket on which listen() was called")
        return cls(socket)

    @property
    def socket(self) -> stdlib.socket:
        """The listening socket, for options and its address."""
        return self._socket

    def set_deadline(self, when: float) -> None:
        """Set the deadline of pending and future accepts: absolute seconds on the loop's clock; `inf` is none.

        They fail at `when` even if a connection is waiting. Do not use it under `trio.serve_listeners`, which ends when
        an accept fails. ClosedResourceError once closed.
        """
        require_open(self._desc.read)
        self._desc.read.set_deadline(when)

    def set_timeout(self, seconds: float) -> None:
        """Set the deadline, in seconds from now; at or below 0 it expires at once. NaN is a ValueError."""
        require_open(self._desc.read)
        self._desc.read.set_timeout(seconds)

    async def accept(self) -> Conn:
        """Wait for the next connection. DeadlineExceeded at the deadline; ClosedResourceError once closed."""
        side = self._accepting
        side.enter()
        try:
            await side.begin()
            delay = _BACKOFF_FIRST
            conn: Conn | None = None
            while conn is None:
                try:
                    conn = self._accept_now()
                except OSError as error:
                    if error.errno in _SHORTAGES:
                        delay = await self._back_off(error, delay)
                    elif error.errno in _SKIPPED:
                        # an error that persists must leave room for other tasks, a cancellation and a deadline
                        side.woken(await side.turn())
                    else:
                        raise broken_error(error) from error
                else:
                    if conn is None:
                        side.woken(await side.parking)
                        delay = _BACKOFF_FIRST
            if not side.slept:
                await side.finish()
            return conn
        finally:
            side.leave()

    def try_accept(self) -> Conn | None:
        """Accept a connection that is waiting. No checkpoint: a caller that loops must let other tasks run.

        None if no connection is waiting or the next one cannot be accepted now; `accept` then waits for one, skips it
        or waits until a shortage is over. Errors as `accept`, and BusyResourceError while a task is in `accept`.
        """
        self._accepting.admit()
        try:
            return self._accept_now()
        except OSError as error:
            if error.errno in _SHORTAGES or error.errno in _SKIPPED:
                return None
            raise broken_error(error) from error

    def _accept_now(self) -> Conn | None:
        """Accept without waiting, None if no connection waits. OSError as accept(2); ECONNABORTED also if the
        connection could not be set up and was closed."""
        try:
            socket = self._socket.accept()[0]
        except BlockingIOError:
            # whoever waits does so outside of this, or the error of the wait would show this one as its context
            return None
        try:
            return Conn(socket, self._has_options or set_options(socket))
        except OSError as error:
            # an error of this connection, or a limit of the event queue (ENOSPC: fs.epoll.max_user_watches)
            socket.close()
            _log.warning("closed a new connection that could not be set up: %s", error.strerror or error)
            raise ConnectionAbortedError(errno.ECONNABORTED, "the connection could not be set up") from error
        except BaseException:
            socket.close()
            raise

    async def _back_off(self, shortage: OSError, delay: float) -> float:
        """Wait `delay` seconds, or until the deadline or a close; return the next delay."""
        _log.warning("cannot accept a connection: %s; trying again in %g s", shortage.strerror, delay)
        # readiness does not end this wait: the listener is ready all the time
        await self._accepting.pause(self._host.clock.now() + delay)
        return min(2 * delay, _BACKOFF_MOST)

    async def aclose(self) -> None:
        """Stop listening; a pending accept raises ClosedResourceError. The file of a unix socket is removed unless it
        was replaced. Idempotent."""
        self.close()
        await self._host.checkpoint()

    def close(self) -> None:
        """Do what `aclose` does, without the checkpoint. May be called after the event loop has ended, and in a forked
        child, where it closes the child's descriptor only."""
        self._host.close(self._desc)
        try:
            if self._unlink is not None and not self._host.is_inherited:
                unlink, self._unlink = self._unlink, None
                unlink()
        finally:
            close_socket(self._socket)


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


def listening_sockets(
    port: int, host: str | None, backlog: int | None = None, *, reuse_port: bool = False
) -> list[stdlib.socket]:
    """Listen as `open_tcp_listeners` does, without an event loop: names are looked up in this thread."""
    addresses = look_up_here(host, port, stdlib.SOCK_STREAM, stdlib.AI_PASSIVE)
    sockets: list[stdlib.socket] = []
    try:
        for socket, address in sockets_for(addresses):
            sockets.append(socket)
            _begin_to_listen(socket, address, backlog, reuse_port)
    except BaseException:
        for socket in sockets:
            socket.close()
        raise
    return sockets


def _listen(socket: stdlib.socket, address: Any, backlog: int | None, reuse_port: bool) -> Listener:
    try:
        _begin_to_listen(socket, address, backlog, reuse_port)
        return Listener(socket, has_options=True)
    except BaseException as error:
        socket.close()
        if isinstance(error, OSError):
            # the kernel does not say which address it means
            error.filename = address_text(address)
        raise


def _begin_to_listen(socket: stdlib.socket, address: Any, backlog: int | None, reuse_port: bool) -> None:
    set_options(socket)
    bind(socket, address, reuse_port)
    socket.listen(0xFFFF if backlog is None else backlog)
    socket.setblocking(False)


async def open_unix_listener(
    path: str | Path,
    *,
    backlog: int | None = None,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
) -> Listener:
    """Listen on a unix socket. A socket file on which no process listens is replaced: on macOS and the BSDs, which do
    not tell a full queue from that, one that has refused connections for a tenth of a second.

    `mode` sets the file's permission bits before any client can connect (0o660: owner and group may); None leaves them
    to the umask. `owner` sets the file's user and group, by number, -1 to leave one as it is. Closing the listener
    removes the file unless it was replaced.
    OSError with EADDRINUSE if another process listens there; FileExistsError if the path is not a socket; their
    `filename` is the path. ValueError for a path with a NUL, as abstract names have it.
    """
    await checkpoint()
    for seconds in remove_stale(Path(path)):
        await sleep(seconds)
    socket, unlink = _listen_on_unix(path, backlog, mode, owner)
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
    for seconds in remove_stale(Path(path)):
        time.sleep(seconds)
    return _listen_on_unix(path, backlog, mode, owner)


def _listen_on_unix(
    path: str | Path, backlog: int | None, mode: int | None, owner: tuple[int, int] | None
) -> tuple[stdlib.socket, Callable[[], None]]:
    if "\0" in str(path):
        raise ValueError(f"{str(path)!r} is not the path of a file: abstract names cannot be listened on")
    file = Path(path)
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
        socket.listen(0xFFFF if backlog is None else backlog)
        socket.setblocking(False)
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
