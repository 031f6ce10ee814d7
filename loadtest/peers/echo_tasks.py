"""An echo server: `python -m loadtest.peers.echo_tasks LOOP deadlined|trio MODE`, on `deadlined.Conn` in any event
loop, or on trio's stream in trio.

plain: no deadline. moved: the read deadline of a `Conn` is moved before every read and its write deadline before every
write. fail_after: a scope around every read and every write, as trio's documentation advises. scope: one scope per
connection, whose deadline is moved before every read and every write; the cheapest way in trio.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import trio

import deadlined
from deadlined import Conn
from deadlined.runtime import run

from .hosts import announce

SECONDS = 5.0


async def plain(stream: Conn | trio.SocketStream) -> None:
    while data := await stream.receive_some():
        await stream.send_all(data)


async def moved(conn: Conn) -> None:
    """Echo until the peer ends, each read and each write within SECONDS."""
    conn.set_read_timeout(SECONDS)
    while data := await conn.receive_some():
        conn.set_write_timeout(SECONDS)
        await conn.send_all(data)
        conn.set_read_timeout(SECONDS)


async def fail_after(stream: trio.SocketStream) -> None:
    """Do the same with a scope for each read and each write."""
    while True:
        with trio.fail_after(SECONDS):
            data = await stream.receive_some()
        if not data:
            return
        with trio.fail_after(SECONDS):
            await stream.send_all(data)


async def scope(stream: trio.SocketStream) -> None:
    """Do the same with one scope per connection."""
    now = trio.current_time
    with trio.move_on_after(SECONDS) as limit:
        while data := await stream.receive_some():
            limit.deadline = now() + SECONDS
            await stream.send_all(data)
            limit.deadline = now() + SECONDS


async def main(host: str, mode: str) -> None:
    serve: Any = {"plain": plain, "moved": moved, "fail_after": fail_after, "scope": scope}[mode]

    async def handle(stream: Any) -> None:
        # the client ends by closing, or was too slow
        with suppress(trio.BrokenResourceError, trio.TooSlowError, deadlined.DeadlineExceeded, ConnectionError):
            await serve(stream)

    started = SimpleNamespace(started=lambda listeners: announce(listeners[0].socket.getsockname()[1]))
    serve_tcp: Any = deadlined.serve_tcp if host == "deadlined" else trio.serve_tcp
    await serve_tcp(handle, 0, host="127.0.0.1", task_status=started)


if __name__ == "__main__":
    run(sys.argv[1], main, *sys.argv[2:])
