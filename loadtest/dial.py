"""Connections of the load test's clients: how they open, where they come from, how they end.

Facts      A kernel has about 28,000 ports for each pair of addresses, and keeps those of closed connections for a
           minute. All of 127.0.0.0/8 is this machine. A socket that does not block opens in steps: TCP, then TLS.
Answer     Every thousand connections have a source address of their own. `begin` starts to open a connection, and
           `proceed` takes the next step whenever the kernel says that it can be taken.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .target import Target

# connections from one source address
PER_ADDRESS = 1000
_ADDRESSES = 250

_LINGER_ZERO = struct.pack("ii", 1, 0)


def source(number: int) -> str:
    """Return the address from which connection `number` comes, from 0 on."""
    place = number // PER_ADDRESS
    return f"127.{1 + place // _ADDRESSES}.{place % _ADDRESSES}.1"


def begin(target: Target, address: str = "", *, narrow: bool = False) -> socket.socket:
    """Return a socket that does not block and begins to connect; wait for EPOLLOUT, and `proceed`. OSError if it fails.

    It comes from `address`, if one is given. `narrow`: so small a segment and receive buffer that a server's kernel
    buffers 100 kB for it, and not megabytes.
    """
    endpoint = socket.socket(target.family, socket.SOCK_STREAM)
    try:
        endpoint.setblocking(False)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if narrow:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if address:
            # the port is chosen when it connects: it must be free for that pair of addresses only
            endpoint.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
            endpoint.bind((address, 0))
        _require(endpoint.connect_ex(target.address), (0, errno.EINPROGRESS))
    except OSError:
        endpoint.close()
        raise
    return endpoint


def proceed(endpoint: socket.socket, target: Target, context: ssl.SSLContext | None) -> tuple[socket.socket, int]:
    """Take the next step to an open connection, with TLS if there is a context.

    Return the socket, which is another one with TLS, and the event to wait for before the next step; 0 if it is open.
    OSError if it cannot be opened.
    """
    _require(endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), (0,))
    if context is not None:
        if not isinstance(endpoint, ssl.SSLSocket):
            # a step of its own: the caller must have this socket before the handshake can fail
            wrapped = context.wrap_socket(endpoint, server_hostname=target.host, do_handshake_on_connect=False)
            return wrapped, EPOLLOUT
        try:
            endpoint.do_handshake()
        except ssl.SSLWantReadError:
            return endpoint, EPOLLIN
        except ssl.SSLWantWriteError:
            return endpoint, EPOLLOUT
    return endpoint, 0


def _require(code: int, good: tuple[int, ...]) -> None:
    if code not in good:
        raise OSError(code, os.strerror(code))


def trouble(error: OSError) -> str:
    """Return a short name of an error, the same for all of its kind."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    return os.strerror(error.errno) if error.errno else str(error)


def how(error: OSError) -> Literal["fin", "rst"]:
    """Tell if the peer has ended the connection by an RST. With EPIPE a FIN had come before it."""
    return "rst" if error.errno == errno.ECONNRESET and not isinstance(error, ssl.SSLError) else "fin"


def close(endpoint: socket.socket, *, reset: bool = False) -> None:
    """Close; with an RST, which leaves no port behind, if `reset`."""
    with suppress(OSError):
        if reset:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    endpoint.close()
