"""One process of a churn, which follows its parent's order."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Channel
from select import EPOLLIN
from time import monotonic
from typing import Any

from .connection import Crowd, Rules, Tally

# seconds between two reports of progress
_REPORT = 0.25


@dataclass(frozen=True)
class Order:
    """What one process does: every `parts`-th of `connections`, from the `part`-th on, for `duration` from `start` on.

    `bytes`: received at most. The answers: a `Counter` of connections that are open, requests and cuts so far, again
    and again; for each message "snapshot" what is known of the connections that are silent, by their addresses; and at
    last a `Tally`. Any other message ends the run early.
    """

    rules: Rules
    connections: int
    start: float
    duration: float
    bytes: int
    seed: int
    part: int = 0
    parts: int = 1


def main(channel: Channel[Any, Any]) -> None:
    channel.send("begun")
    channel.send(_Ordered(channel.recv(), channel).run())


class _Ordered(Crowd):
    """A crowd that follows an order. `run` does all."""

    def __init__(self, order: Order, channel: Channel[Any, Any]) -> None:
        super().__init__(order.rules, random.Random(order.seed + order.part), Tally())
        self._order = order
        self._channel = channel

    def run(self) -> Tally:
        order, tally = self._order, self.tally
        end = order.start + order.duration
        self.loop.watch(self._channel.fileno(), EPOLLIN, self._told)
        self._report(monotonic())
        for number in range(order.part, order.connections, order.parts):
            opening = self.profile.opening(number, order.connections, order.duration)
            self.loop.at(order.start + opening, partial(self.connect, number))
        worked = self.loop.worked()
        try:
            while not self.finishing:
                self.loop.turn(end)
                if tally.received > order.bytes:
                    tally.stopped = f"{order.bytes / 2**30:g} GiB were received, which is the limit"
                if monotonic() >= end or tally.stopped:
                    self.finish()
            tally.ended(order.start, self.loop.worked() - worked)
            while self.open:
                self.loop.turn(math.inf)
        finally:
            self.close()
        return tally

    def _report(self, now: float) -> None:
        self._channel.send(Counter(open=len(self.open), requests=self.tally.requests, cut=self.tally.cut.total()))
        self.loop.at(now + _REPORT, self._report)

    def _told(self, mask: int, now: float, wrong: float) -> None:
        """Follow a message of the parent; EOFError or ConnectionResetError if it has gone."""
        if self._channel.recv() == "snapshot":
            found = ((one.peer, one.silent()) for one in self.open.values())
            self._channel.send({peer: silent for peer, silent in found if silent is not None})
        elif not self.finishing:
            self.tally.interrupted = True
            self.finish()
