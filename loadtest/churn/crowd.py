"""All connections of one process, from the first to the last, and what the parent asks of them meanwhile."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Channel
from select import EPOLLIN
from time import monotonic, thread_time
from typing import Any

from ..loop import Loop
from .connection import Connection, Rules, Shared
from .profiles import PROFILES
from .tally import Tally

# what stands for the deadline of a server that has none: seconds
PERIOD = 5.0
# seconds after which one comes back that the server did not want: a churn is no flood
AGAIN = 1.0
# seconds between two reports of progress
_REPORT = 0.25


@dataclass(frozen=True)
class Order:
    """What one process does: every `parts`-th of `connections`, from the `part`-th on, for `duration` from `start` on.

    `bytes`: received at most. The answers: `Progress` again and again; for each message "snapshot" what is known of the
    connections that are silent, by their addresses; and at last a `Tally`. Any other message ends the run early.
    """

    rules: Rules
    connections: int
    start: float
    duration: float
    bytes: int
    seed: int
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class Progress:
    """Connections that are open, requests so far, and cuts so far."""

    open: int
    requests: int
    cut: int


def main(channel: Channel[Any, Any]) -> None:
    """Be one client process: follow the parent's order."""
    channel.send(_Crowd(channel.recv(), channel).run())


class _Crowd:
    """The connections of an order. `run` does all."""

    def __init__(self, order: Order, channel: Channel[Any, Any]) -> None:
        rules = order.rules
        profile = PROFILES[rules.profile]
        chance = random.Random(order.seed + order.part)
        self.tally = Tally()
        self._order = order
        self._channel = channel
        self._loop = Loop()
        self._open: dict[int, Connection] = {}
        self._end = order.start + order.duration
        self._reported = 0.0
        self._shared = Shared(
            rules,
            self._loop,
            self.tally,
            profile(rules.deadline or PERIOD, chance, cuts=rules.deadline is not None),
            rules.target.get(),
            rules.target.context(),
            self._ended,
        )

    def run(self) -> Tally:
        """Open, hold and end the connections."""
        order = self._order
        self._loop.watch(self._channel.fileno(), EPOLLIN, self._told)
        for number in range(order.part, order.connections, order.parts):
            opening = self._shared.profile.opening(number, order.connections, order.duration)
            self._loop.at(order.start + opening, partial(self._connect, number))
        cpu = thread_time()
        while not self._shared.finishing:
            self._turn(self._end)
            if monotonic() >= self._end or self.tally.received > order.bytes:
                self._finish()
        self.tally.seconds = max(monotonic() - order.start, 1e-9)
        self.tally.busy = (thread_time() - cpu) / self.tally.seconds
        # every wait has a limit, so each connection ends
        while self._open:
            self._turn(monotonic() + _REPORT)
        self._loop.close()
        return self.tally

    def _turn(self, limit: float) -> None:
        self._loop.turn(min(limit, self._reported + _REPORT))
        now = monotonic()
        if now >= self._reported + _REPORT:
            self._reported = now
            tally = self.tally
            self._channel.send(Progress(len(self._open), tally.requests, tally.cut.total()))

    def _connect(self, number: int, now: float) -> None:
        if not self._shared.finishing:
            self._open[number] = connection = Connection(number, self._shared)
            self.tally.most = max(self.tally.most, len(self._open))
            connection.start(now)

    def _ended(self, connection: Connection, now: float) -> None:
        del self._open[connection.number]
        if not self._shared.finishing:
            back = max(self._shared.profile.back(now), now + AGAIN * connection.refused)
            self._loop.at(back, partial(self._connect, connection.number))

    def _told(self, mask: int, now: float, wrong: float) -> None:
        """Follow a message of the parent; upon its end, stop at once."""
        try:
            message = self._channel.recv()
        except (EOFError, ConnectionResetError):
            self._shared.finishing = True
            for connection in list(self._open.values()):
                connection.stop(now)
            self._loop.forget(self._channel.fileno())
            raise
        if message == "snapshot":
            found = ((one.peer, one.silent()) for one in self._open.values())
            self._channel.send({peer: silent for peer, silent in found if silent is not None})
        elif not self._shared.finishing:
            self.tally.interrupted = True
            self._finish()

    def _finish(self) -> None:
        if self.tally.received > self._order.bytes:
            self.tally.stopped = f"{self._order.bytes / 2**30:g} GiB were received, which is the limit"
        self._shared.finishing = True
        now = monotonic()
        for connection in list(self._open.values()):
            connection.finish(now)
