"""Source addresses of the loopback interface, so that many connections do not run out of ports.

Facts      A kernel has about 28,000 ports for each pair of addresses, and keeps those of closed connections for a
           minute. All of 127.0.0.0/8 is this machine.
Answer     Every thousand connections have a source address of their own.
"""

from __future__ import annotations

import socket
import struct

# connections from one source address
PER_ADDRESS = 1000
_ADDRESSES = 250

_LINGER_ZERO = struct.pack("ii", 1, 0)


def source(number: int) -> str:
    """Return the address from which connection `number` comes, from 0 on."""
    place = number // PER_ADDRESS
    return f"127.{1 + place // _ADDRESSES}.{place % _ADDRESSES}.1"


def bind(endpoint: socket.socket, address: str) -> None:
    """Let the socket connect from this address. The port is chosen then: it must be free for that pair only."""
    endpoint.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
    endpoint.bind((address, 0))


def reset_on_close(endpoint: socket.socket) -> None:
    """Let `close` send an RST, which leaves no port behind."""
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
