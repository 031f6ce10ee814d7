"""Ports on which nothing listens yet, for sockets that are opened later: one per worker process, or by a command."""

from __future__ import annotations

import socket

from ...net.listen import bind, sockets_for
from ...net.names import look_up_here


def free_port(host: str, port: int) -> int:
    """Return `port`, or for 0 one that the kernel chooses. OSError if a process listens on it on an address of `host`.

    SO_REUSEPORT would let an unrelated process share the port, so bind once without it to detect a conflict. The name
    is looked up in this thread, because a fork would lose any other.
    """
    addresses = look_up_here(host or None, port, socket.SOCK_STREAM, socket.AI_PASSIVE)
    for probe, address in sockets_for(addresses):
        with probe:
            bind(probe, (address[0], port, *address[2:]))
            port = probe.getsockname()[1]
    return port
