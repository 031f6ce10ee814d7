"""A client of many websockets that sends each message when the echo of the last has come: one process, one core.

The frames are made beforehand with a mask of zeros, so that the client costs little: the server unmasks them like any.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Final

_HANDSHAKE: Final = (
    b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
_DEFLATE: Final = b"sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n"

# seconds in which an answer must come
_PATIENCE: Final = 20.0


def opened(port: int, compressed: bool = False) -> socket.socket:
    """Return a connection whose websocket was accepted. RuntimeError if it was not."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(_HANDSHAKE + (_DEFLATE if compressed else b"") + b"\r\n")
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        data = connection.recv(4096)
        if not data:
            break
        head += data
    if not head.startswith(b"HTTP/1.1 101 "):
        connection.close()
        raise RuntimeError(f"no websocket: {head[:200]!r}")
    return connection


def framed(size: int, masked: bool) -> bytes:
    """Return a text message of `size` bytes in one frame."""
    mask = 0x80 if masked else 0
    if size < 126:
        head = struct.pack("!BB", 0x81, mask | size)
    elif size < 65536:
        head = struct.pack("!BBH", 0x81, mask | 126, size)
    else:
        head = struct.pack("!BBQ", 0x81, mask | 127, size)
    return head + (bytes(4) if masked else b"") + b"x" * size


def echoed(port: int, connections: int, size: int, seconds: float) -> float:
    """Return the messages per second that a server echoes. RuntimeError for an echo that is not the message."""
    message, echo = framed(size, True), framed(size, False)
    sockets = {each.fileno(): each for each in (opened(port) for _ in range(connections))}
    try:
        return _echoed(sockets, message, echo, seconds)
    finally:
        for each in sockets.values():
            each.close()


def _echoed(sockets: dict[int, socket.socket], message: bytes, echo: bytes, seconds: float) -> float:
    left = dict.fromkeys(sockets, len(echo))
    with select.epoll() as poll:
        for number, each in sockets.items():
            each.settimeout(_PATIENCE)
            poll.register(number, select.EPOLLIN)
            each.sendall(message)
        count = 0
        began = time.perf_counter()
        end = began + seconds
        while time.perf_counter() < end:
            ready = poll.poll(_PATIENCE)
            if not ready:
                raise RuntimeError("no echo has come")
            for number, _ in ready:
                data = sockets[number].recv(1 << 20)
                at = len(echo) - left[number]
                if not data or echo[at : at + len(data)] != data:
                    raise RuntimeError(f"no echo: {data[:200]!r}")
                left[number] -= len(data)
                if not left[number]:
                    left[number] = len(echo)
                    sockets[number].sendall(message)
                    count += 1
        return count / (time.perf_counter() - began)
