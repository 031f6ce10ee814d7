"""The minimum that an HTTP server on trio must do: `python -m loadtest.peers.floor h11|httptools`.

One task per connection receives, calls the parser, and sends an answer that was made beforehand. There is no
application, no deadline, no check and no body, and only the peer ends a connection. This is the cost of the kernel,
trio and the parser.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import h11
import trio

import deadlined
from deadlined import Conn

ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 13\r\n"
    b"date: Sat, 01 Jan 2000 00:00:00 GMT\r\n\r\nHello, world!"
)


class Count:
    """The callbacks of httptools."""

    def __init__(self) -> None:
        self.complete = 0
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field."""
        self.headers.append((name, value))

    def on_message_complete(self) -> None:
        """Count a request."""
        self.complete += 1
        self.headers = []


async def with_httptools(conn: Conn) -> None:
    """Answer all requests in the received bytes by one send."""
    import httptools  # not imported when h11 is measured

    count = Count()
    parser: Any = httptools.HttpRequestParser(count)
    while data := await received(conn):
        parser.feed_data(data)
        conn.try_send(ANSWER * count.complete)
        count.complete = 0


async def with_h11(conn: Conn) -> None:
    """Answer requests as deadlined does with h11: a connection object for each request."""
    while data := await received(conn):
        parser = h11.Connection(h11.SERVER)
        parser.receive_data(data)
        if isinstance(parser.next_event(), h11.Request):
            conn.try_send(ANSWER)


async def received(conn: Conn) -> bytes:
    """Receive the next bytes, without a system call if the half is drained."""
    data = None if conn.drained else conn.try_receive()
    while data is None:
        await conn.wait_readable()
        data = conn.try_receive()
    return data


async def handle(conn: Conn) -> None:
    """Serve a connection."""
    with suppress(trio.BrokenResourceError):
        await {"h11": with_h11, "httptools": with_httptools}[sys.argv[1]](conn)


async def main() -> None:
    """Serve on a free port until the process is terminated."""
    listeners = await deadlined.open_tcp_listeners(0, host="127.0.0.1")
    print(f"listening on http://127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)
    await trio.serve_listeners(handle, listeners)


if __name__ == "__main__":
    trio.run(main)
