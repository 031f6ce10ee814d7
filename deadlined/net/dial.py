"""Connecting out, under a deadline. Several addresses of one name are raced (happy eyeballs, RFC 8305) by trio's own
machinery."""

from __future__ import annotations

import math
import socket as stdlib
from pathlib import Path

import trio

from ..errors import DeadlineExceeded
from .conn import Conn


async def open_tcp_stream(host: str | bytes, port: int, *, deadline: float = math.inf) -> Conn:
    """Connect to a TCP port by the first address of `host` that answers, name look-up included.

    DeadlineExceeded (op "connect") at `deadline`, absolute; at or before now it fails at once. OSError if no address
    can be reached. NaN is a ValueError.
    """
    with _connecting(deadline) as scope:
        stream = await trio.open_tcp_stream(host, port)
        return Conn.from_socket(_detach(stream.socket))
    raise _exceeded(scope)


async def open_unix_stream(path: str | Path, *, deadline: float = math.inf) -> Conn:
    """Connect to a unix socket; errors as `open_tcp_stream`."""
    with _connecting(deadline) as scope:
        socket = trio.socket.socket(stdlib.AF_UNIX, stdlib.SOCK_STREAM)
        try:
            await socket.connect(str(path))
            return Conn.from_socket(_detach(socket))
        finally:
            socket.close()
    raise _exceeded(scope)


def _connecting(deadline: float) -> trio.CancelScope:
    return trio.CancelScope(deadline=deadline)


def _exceeded(scope: trio.CancelScope) -> DeadlineExceeded:
    return DeadlineExceeded("connect", scope.deadline)


def _detach(socket: trio.socket.SocketType) -> stdlib.socket:
    """The same connection, out of trio's hands."""
    family, type_, proto = socket.family, socket.type, socket.proto
    return stdlib.socket(family, type_, proto, fileno=socket.detach())
