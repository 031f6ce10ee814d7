"""An echo server on `trio.SocketStream`: `python -m loadtest.peers.echo_trio plain|fail_after|moved`.

plain: no timeout. fail_after: a scope around every read and every write, as trio's documentation advises. moved: one
scope per connection, whose deadline is moved before every read and every write; the cheapest way in trio.
"""

from __future__ import annotations

import sys
from contextlib import suppress

import trio

SECONDS = 5.0


async def plain(stream: trio.SocketStream) -> None:
    """Echo until the peer ends."""
    while data := await stream.receive_some():
        await stream.send_all(data)


async def fail_after(stream: trio.SocketStream) -> None:
    """Echo until the peer ends, each read and each write within SECONDS."""
    while True:
        with trio.fail_after(SECONDS):
            data = await stream.receive_some()
        if not data:
            return
        with trio.fail_after(SECONDS):
            await stream.send_all(data)


async def moved(stream: trio.SocketStream) -> None:
    """Do the same as `fail_after` with one scope per connection."""
    now = trio.current_time
    with trio.move_on_after(SECONDS) as scope:
        while True:
            scope.deadline = now() + SECONDS
            data = await stream.receive_some()
            if not data:
                return
            scope.deadline = now() + SECONDS
            await stream.send_all(data)


async def handle(stream: trio.SocketStream) -> None:
    """Serve a connection in the mode of the command line."""
    # the client ends by closing, or was too slow
    with suppress(trio.BrokenResourceError, trio.TooSlowError):
        await {"plain": plain, "fail_after": fail_after, "moved": moved}[sys.argv[1]](stream)


async def main() -> None:
    """Serve on a free port until the process is terminated."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(f"listening on tcp://127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)
    await trio.serve_listeners(handle, listeners)


if __name__ == "__main__":
    trio.run(main)
