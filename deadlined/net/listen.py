"""Listening over TCP, with and without an event loop."""

from __future__ import annotations

import errno
import socket as stdlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from .listener import Listener
from .names import AddressInfo, look_up, look_up_here, require_port
from .sockets import address_text, set_options

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

    A name with several lines in /etc/hosts has the same address several times, which can be bound only once. Addresses
    of a family that the kernel does not support are skipped if there are others: containers often resolve IPv6
    addresses without supporting them.
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
    """Bind with a listener's options: connections of an earlier listener may still be closing, and a socket of IPv6
    does not serve IPv4."""
    socket.setsockopt(stdlib.SOL_SOCKET, stdlib.SO_REUSEADDR, 1)
    if reuse_port:
        socket.setsockopt(stdlib.SOL_SOCKET, spreading_option() or stdlib.SO_REUSEPORT, 1)
    if socket.family == stdlib.AF_INET6:
        socket.setsockopt(stdlib.IPPROTO_IPV6, stdlib.IPV6_V6ONLY, 1)
    socket.bind(address)


def spreading_option() -> int | None:
    """Return the option by which the kernel spreads new connections over the sockets that share a port. None if the
    system has none: there SO_REUSEPORT lets sockets share a port, but one of them gets all connections."""
    if sys.platform == "linux":
        return stdlib.SO_REUSEPORT
    # FreeBSD, from Python 3.14 on
    return getattr(stdlib, "SO_REUSEPORT_LB", None)


def listening_sockets(port: int, host: str | None, *, reuse_port: bool = False) -> list[stdlib.socket]:
    """Listen on every address of the host, without an event loop: its name is looked up in this thread. The caller must
    have checked the port. Errors as `open_tcp_listeners`."""
    return _sockets(port, host, partial(_begin_to_listen, backlog=None, reuse_port=reuse_port))


def bound_sockets(port: int, host: str | None) -> list[stdlib.socket]:
    """Do what `listening_sockets` does, but for listen(): the kernel refuses connections until `start_listening`.
    OSError if a process listens there. Linux lets several bind an address that do not listen yet: `start_listening`
    fails in all but one."""
    return _sockets(port, host, _bind_to_address)


def start_listening(socket: stdlib.socket, backlog: int | None = None) -> None:
    """Accept connections on a socket that is bound from now on. OSError with EADDRINUSE if another process listens
    there by now."""
    socket.listen(_MOST_WAITING if backlog is None else backlog)


def _sockets(port: int, host: str | None, prepare: Callable[[stdlib.socket, Any], None]) -> list[stdlib.socket]:
    addresses = look_up_here(host, port, stdlib.SOCK_STREAM, stdlib.AI_PASSIVE)
    sockets: list[stdlib.socket] = []
    try:
        for socket, address in sockets_for(addresses):
            sockets.append(socket)
            prepare(socket, address)
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
    _bind_to_address(socket, address, reuse_port)
    try:
        start_listening(socket, backlog)
    except OSError as error:
        error.filename = address_text(address)
        raise


def _bind_to_address(socket: stdlib.socket, address: Any, reuse_port: bool = False) -> None:
    try:
        set_options(socket)
        bind(socket, address, reuse_port)
        socket.setblocking(False)
    except OSError as error:
        # the kernel does not say which address it means
        error.filename = address_text(address)
        raise
