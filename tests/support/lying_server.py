"""A server of the benchmark `churn` that misbehaves in one chosen way, in a thread: its client must notice."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from loadtest.peers.churn_protocol import CLOSE, EXPIRED, REPLY, REQUEST, SET, UNKNOWN

HONEST = "honest"
# honest, but so slow that deadlines pass while the request that moves them lies here
SLOW = "slow"
# deadlines that were moved away fire all the same, and are owned up to
STALE = "stale"
# a deadline that no request of the connection has set, as after a mix-up of two connections
FOREIGN = "foreign"
# each deadline is reported twice
TWICE = "twice"
# at half time
EARLY = "early"
# at half time, and the server says that it was in time
EARLY_DENIED = "early, denied"
# nothing ever fires
SILENT = "silent"
# deadlines are set a second later than was asked
GENEROUS = "generous"
# the connection is closed in place of an expiry
RUDE = "rude"


class _Connection(asyncio.Protocol):
    """One connection. Times are on the loop's clock, which is `time.monotonic`."""

    def __init__(self, lie: str, transports: set[asyncio.Transport]) -> None:
        self._lie = lie
        self._transports = transports
        self._loop = asyncio.get_running_loop()
        self._timers: list[asyncio.TimerHandle] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._transports.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transports.discard(self._transport)
        self._cancel()

    def data_received(self, data: bytes) -> None:
        if self._lie == SLOW:
            self._loop.call_later(0.2, self._serve, data)
        else:
            self._serve(data)

    def _serve(self, data: bytes) -> None:
        # requests are made one at a time and are smaller than any segment
        number, kind, due = REQUEST.unpack(data)
        now = self._loop.time()
        if kind == CLOSE:
            self._transport.close()
            return
        if self._lie != STALE:
            self._cancel()
        if self._lie == GENEROUS:
            due += 1.0
        self._transport.write(REPLY.pack(number, SET, due, 0.0))
        if due < math.inf and self._lie != SILENT:
            when = now + (due - now) / 2 if self._lie in (EARLY, EARLY_DENIED) else due
            # asyncio's own timers come early by up to the clock's resolution
            self._timers.append(self._loop.call_at(when + 1e-6, self._fire, number, due))

    def _fire(self, number: int, due: float) -> None:
        if self._lie == RUDE:
            self._transport.close()
            return
        lateness = self._loop.time() - due
        if self._lie == EARLY_DENIED:
            lateness = 0.0
        if self._lie == FOREIGN:
            number, due = UNKNOWN, due - 100.0
        for _ in range(2 if self._lie == TWICE else 1):
            self._transport.write(REPLY.pack(number, EXPIRED, due, lateness))

    def _cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


@contextmanager
def lying_server(lie: str) -> Iterator[int]:
    """Serve until the block ends; give the port."""
    loop = asyncio.new_event_loop()
    transports: set[asyncio.Transport] = set()
    server = loop.run_until_complete(loop.create_server(lambda: _Connection(lie, transports), "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        # a few turns before: asyncio drops a connection, unclosed, if its server closes while it is being accepted; and
        # a few after: closing is put off to the next turn
        _turn(loop, 5)
        server.close()
        for transport in list(transports):
            transport.abort()
        _turn(loop, 5)
        loop.close()


def _turn(loop: asyncio.AbstractEventLoop, times: int) -> None:
    for _ in range(times):
        loop.run_until_complete(asyncio.sleep(0))
