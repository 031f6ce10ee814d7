"""The cost of deadlines in an echo server: `python -m loadtest.peers.echo_tax deadlines|together|clock`.

    deadlines  each read and each write has a deadline of its own
    together   one call per message moves both deadlines
    clock      a bound: in place of each move it calls a method that only reads the clock (compiled if the package is)

They are on and off in turn, see `loadtest.peers.tax`. When the last connection has ended, the server prints the cost
and waits to be terminated.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

import deadlined
from deadlined import Conn
from deadlined.runtime import current_host

from .tax import Meter

STRETCH: Final = 0.02
SECONDS: Final = 5.0


class Load:
    """The server. `on`: whether deadlines are moved; `messages`: the number of messages echoed so far."""

    def __init__(self, echo: Callable[[Load, Conn], Awaitable[None]]) -> None:
        self._echo = echo
        self._open = 0
        self.on = False
        self.messages = 0
        self.meter = Meter(self._switch, lambda: self.messages, STRETCH)

    async def serve(self, conn: Conn) -> None:
        """Echo until the peer ends; print the cost after the last connection."""
        self._open += 1
        with suppress(trio.BrokenResourceError):
            await self._echo(self, conn)
        self._open -= 1
        if not self._open:
            self.meter.tell()

    def _switch(self, on: bool) -> None:
        self.on = on


async def deadlines(load: Load, conn: Conn) -> None:
    """Echo until the peer ends, with a deadline for each read and each write."""
    while True:
        if load.on:
            conn.set_read_timeout(SECONDS)
        data = await conn.receive_some()
        if not data:
            return
        if load.on:
            conn.set_write_timeout(SECONDS)
        await conn.send_all(data)
        load.messages += 1


async def together(load: Load, conn: Conn) -> None:
    """Echo until the peer ends; one call per message moves both deadlines."""
    while data := await conn.receive_some():
        if load.on:
            conn.set_timeout(SECONDS)
        await conn.send_all(data)
        load.messages += 1


async def clock(load: Load, conn: Conn) -> None:
    """Echo until the peer ends, and read the clock as often as `deadlines` does."""
    clock = current_host().clock
    while True:
        if load.on:
            clock.now()
        data = await conn.receive_some()
        if not data:
            return
        if load.on:
            clock.now()
        await conn.send_all(data)
        load.messages += 1


async def main() -> None:
    """Serve on a free port until the process is terminated."""
    load = Load({"deadlines": deadlines, "together": together, "clock": clock}[sys.argv[1]])
    listeners = await deadlined.open_tcp_listeners(0, host="127.0.0.1")
    print(f"listening on tcp://127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.meter.alternate)
        await trio.serve_listeners(load.serve, listeners)


if __name__ == "__main__":
    trio.run(main)
