"""Outgoing connections under a deadline. Trio races the addresses of a name (happy eyeballs, RFC 8305).

A non-blocking connect to a unix socket never waits: it succeeds or fails, with EAGAIN if the listener's queue is full.
No event tells when there is room again, so it is tried again after 5 ms, and then at growing intervals.
"""

from __future__ import annotations

import math
import socket as stdlib
import ssl
from pathlib import Path

import trio

from ..errors import DeadlineExceeded
from .conn import Conn
from .tls import TlsConn

# seconds between two attempts at a full queue: the first is short because a working server accepts soon, the longest is
# the delay that a caller may see after there is room
_RETRY_FIRST = 0.005
_RETRY_MOST = 0.1


async def open_tcp_stream(host: str | bytes, port: int, *, deadline: float = math.inf) -> Conn:
    """Connect to a TCP port at the first address of `host` that answers.

    DeadlineExceeded (op "connect") at `deadline`, absolute seconds, which includes the name look-up; at or before now
    it is raised at once. OSError if no address can be reached. NaN is a ValueError.
    """
    with _connecting(deadline) as scope:
        stream = await trio.open_tcp_stream(host, port)
        socket = _detach(stream.socket)
        try:
            return Conn.from_socket(socket)
        except BaseException:
            socket.close()
            raise
    raise _exceeded(scope)


async def open_tls_stream(
    host: str,
    port: int,
    *,
    ssl_context: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    https_compatible: bool = False,
    deadline: float = math.inf,
) -> TlsConn:
    """Connect to a TCP port as `open_tcp_stream`, and set TLS up; `deadline` includes the handshake.

    Without a context, `ssl.create_default_context()` verifies the server against the system's authorities. It must have
    a certificate for `server_hostname`, or `host`. BrokenResourceError if the handshake fails; its cause is the
    SSLError.
    """
    context = ssl_context or ssl.create_default_context()
    conn = await open_tcp_stream(host, port, deadline=deadline)
    try:
        tls = TlsConn(conn, context, server_hostname=server_hostname or host, https_compatible=https_compatible)
        conn.set_deadline(deadline)
        await tls.do_handshake()
        conn.set_deadline(math.inf)
    except DeadlineExceeded as late:
        conn.close()
        raise DeadlineExceeded("connect", deadline) from late
    except BaseException:
        conn.close()
        raise
    return tls


async def open_unix_stream(path: str | Path, *, deadline: float = math.inf) -> Conn:
    """Connect to a unix socket. Waits while the listener's queue is full. Errors as `open_tcp_stream`."""
    with _connecting(deadline) as scope:
        await trio.lowlevel.checkpoint()
        delay = _RETRY_FIRST
        socket = stdlib.socket(stdlib.AF_UNIX, stdlib.SOCK_STREAM)
        try:
            socket.setblocking(False)
            while not _connects(socket, str(path)):
                await trio.sleep(delay)
                delay = min(2 * delay, _RETRY_MOST)
            return Conn.from_socket(socket)
        except BaseException:
            socket.close()
            raise
    raise _exceeded(scope)


def _connects(socket: stdlib.socket, path: str) -> bool:
    """Try to connect; False if the listener's queue is full."""
    try:
        socket.connect(path)
    except BlockingIOError:
        return False
    return True


def _connecting(deadline: float) -> trio.CancelScope:
    return trio.CancelScope(deadline=deadline)


def _exceeded(scope: trio.CancelScope) -> DeadlineExceeded:
    return DeadlineExceeded("connect", scope.deadline)


def _detach(socket: trio.socket.SocketType) -> stdlib.socket:
    """Take the descriptor from trio into a socket of the standard library."""
    family, type_, proto = socket.family, socket.type, socket.proto
    return stdlib.socket(family, type_, proto, fileno=socket.detach())


# for those who ask with isinstance(); the class itself knows no event loop
trio.abc.HalfCloseableStream.register(TlsConn)
