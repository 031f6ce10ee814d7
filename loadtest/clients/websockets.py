"""Websockets that are opened and then say nothing. `websocket.c` beside this file measures rates."""

from __future__ import annotations

import socket
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
