"""Connecting out, under a deadline. Several addresses of one name are raced (happy eyeballs, RFC 8305) by trio's own
machinery.

Connecting to a unix socket never waits in the kernel: it succeeds or it fails, with EAGAIN if the listener's queue is
full, and nothing tells when there is room again. So that is asked for, 5 ms after and then less and less often.
"""

from __future__ import annotations

import math
import socket as stdlib
from pathlib import Path

import trio

from ..errors import DeadlineExceeded
from .conn import Conn

# seconds between two attempts at a full queue: the first is short because a server that accepts at all does it soon,
# the longest is what a caller may wait in vain after there is room
_RETRY_FIRST = 0.005
_RETRY_MOST = 0.1


async def open_tcp_stream(host: str | bytes, port: int, *, deadline: float = math.inf) -> Conn:
    """Connect to a TCP port by the first address of `host` that answers, name look-up included.

    DeadlineExceeded (op "connect") at `deadline`, absolute; at or before now it fails at once. OSError if no address
    can be reached. NaN is a ValueError.
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


async def open_unix_stream(path: str | Path, *, deadline: float = math.inf) -> Conn:
    """Connect to a unix socket; errors as `open_tcp_stream`."""
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
    """False if the listener's queue is full."""
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
    """The same connection, out of trio's hands."""
    family, type_, proto = socket.family, socket.type, socket.proto
    return stdlib.socket(family, type_, proto, fileno=socket.detach())
