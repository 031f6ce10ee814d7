"""What deadlines cost an echo server: `python -m loadtest.peers.echo_tax deadlines|clock`.

Facts      Two deadlines moved for every message cost a few percent of it.
Hazard     Two starts of one server differ by more, and so do two seconds of a shared machine.
Answer     One server moves its deadlines for a fiftieth of a second, and none in the next, in turn. The CPU time of a
           message in one stretch is compared to that in the stretch right after it.
Cost       A look at the switch before each operation, in both.

clock is no server with deadlines but a bound: where `deadlines` moves one, it calls a method, compiled where the
package is, that reads the clock and does nothing else.

When its last connection has ended it prints `{"tax": ..., "pairs": ...}`: by how many percent a message with deadlines
took more CPU time, as the median of so many pairs of stretches. Then it waits to be ended.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

import deadlined
from deadlined import Conn
from deadlined.runtime import current_pump

STRETCH: Final = 0.02
SECONDS: Final = 5.0


class Meter:
    """Switches what `echo` does beside echoing `on` and off, and knows what a message took meanwhile."""

    def __init__(self, echo: Callable[[Meter, Conn], Awaitable[None]]) -> None:
        self._echo = echo
        self.on = False
        self.messages = 0
        self._open = 0
        # CPU seconds per message, with deadlines and without, as they followed each other
        self._pairs: list[tuple[float, float]] = []

    async def alternate(self) -> None:
        """Switch for ever."""
        while True:
            with_deadlines = await self._stretch(on=True)
            without = await self._stretch(on=False)
            if with_deadlines and without:
                self._pairs.append((with_deadlines, without))

    async def serve(self, conn: Conn) -> None:
        """Echo until the peer ends; after the last connection, tell."""
        self._open += 1
        with suppress(trio.BrokenResourceError):
            await self._echo(self, conn)
        self._open -= 1
        if not self._open:
            self._tell()

    async def _stretch(self, *, on: bool) -> float:
        """CPU seconds per message; 0 if none came."""
        self.on = on
        messages, cpu = self.messages, time.process_time()
        await trio.sleep(STRETCH)
        messages, cpu = self.messages - messages, time.process_time() - cpu
        return cpu / messages if messages else 0.0

    def _tell(self) -> None:
        if self._pairs:
            ratio = statistics.median(first / second for first, second in self._pairs)
            print(json.dumps({"tax": (ratio - 1) * 100, "pairs": len(self._pairs)}), flush=True)


async def deadlines(meter: Meter, conn: Conn) -> None:
    """Echo until the peer ends, each read and each write with a deadline of its own."""
    while True:
        if meter.on:
            conn.set_read_timeout(SECONDS)
        data = await conn.receive_some()
        if not data:
            return
        if meter.on:
            conn.set_write_timeout(SECONDS)
        await conn.send_all(data)
        meter.messages += 1


async def clock(meter: Meter, conn: Conn) -> None:
    """Echo until the peer ends, and read the clock as often as `deadlines` does."""
    clock = current_pump().clock
    while True:
        if meter.on:
            clock.now()
        data = await conn.receive_some()
        if not data:
            return
        if meter.on:
            clock.now()
        await conn.send_all(data)
        meter.messages += 1


async def main() -> None:
    """Serve on a free port until the process is ended."""
    meter = Meter({"deadlines": deadlines, "clock": clock}[sys.argv[1]])
    listeners = await deadlined.open_tcp_listeners(0, host="127.0.0.1")
    print(f"listening on tcp://127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(meter.alternate)
        await trio.serve_listeners(meter.serve, listeners)


if __name__ == "__main__":
    trio.run(main)
