"""One process of a churn, which follows its parent's order."""

from __future__ import annotations

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
    """Be one client process: follow the parent's order."""
    channel.send(_Run(channel.recv(), channel).run())


class _Run:
    """An order while it is followed. `run` does all."""

    def __init__(self, order: Order, channel: Channel[Any, Any]) -> None:
        self._order = order
        self._channel = channel
        self._crowd = Crowd(order.rules, random.Random(order.seed + order.part), Tally())
        self._reported = 0.0

    def run(self) -> Tally:
        """Open, hold and end the connections."""
        order, crowd, tally = self._order, self._crowd, self._crowd.tally
        end = order.start + order.duration
        crowd.loop.watch(self._channel.fileno(), EPOLLIN, self._told)
        for number in range(order.part, order.connections, order.parts):
            opening = crowd.profile.opening(number, order.connections, order.duration)
            crowd.loop.at(order.start + opening, partial(crowd.connect, number))
        worked = crowd.loop.worked()
        try:
            while not crowd.finishing:
                self._turn(end)
                if tally.received > order.bytes:
                    tally.stopped = f"{order.bytes / 2**30:g} GiB were received, which is the limit"
                if monotonic() >= end or tally.stopped:
                    crowd.finish()
            tally.ended(order.start, crowd.loop.worked() - worked)
            while crowd.open:
                self._turn(monotonic() + _REPORT)
        finally:
            crowd.close()
        return tally

    def _turn(self, limit: float) -> None:
        self._crowd.loop.turn(min(limit, self._reported + _REPORT))
        now = monotonic()
        if now >= self._reported + _REPORT:
            self._reported = now
            tally = self._crowd.tally
            self._channel.send(Counter(open=len(self._crowd.open), requests=tally.requests, cut=tally.cut.total()))

    def _told(self, mask: int, now: float, wrong: float) -> None:
        """Follow a message of the parent; EOFError or ConnectionResetError if it has gone."""
        if self._channel.recv() == "snapshot":
            found = ((one.peer, one.silent()) for one in self._crowd.open.values())
            self._channel.send({peer: silent for peer, silent in found if silent is not None})
        elif not self._crowd.finishing:
            self._crowd.tally.interrupted = True
            self._crowd.finish()
