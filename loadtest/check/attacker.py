"""The process that attacks: it follows scripts, and says what became of their connections.

It takes orders through the connection to its parent: `Watch` measures each script once, `Crowd` keeps many connections
of one script open. Any further message ends what is being done. All limits are the order's.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from select import EPOLLIN
from time import monotonic
from typing import Any, TypeAlias

from ..line import Line
from ..loop import Loop
from ..target import Target
from .probe import Probe
from .scripts import DOWN, Script, Seen

# seconds between two starts, so that the server is not late for one because of another
SPACING = 0.015
# the same in a crowd, and after an end there: a crowd is not a flood
CROWD_SPACING = 0.001
# seconds between two reports of progress
REPORT = 0.25
# seconds from the start of a connection that has ended to that of the next: a crowd holds on, it does not flood, and a
# flood is so many connections per second
AGAIN = 1.0
# seconds that a connection of a flood stays open
PASSING = 0.05
# seconds for all of a crowd to connect
STANDING = 5.0
# seconds for a server that has ended a connection to take or refuse another
KNOCKING = 1.0
_REFUSED = os.strerror(errno.ECONNREFUSED)
# connections that a crowd opens at most, as a multiple of those that it wants open
REOPENED = 30

Channel: TypeAlias = "Connection[Any, Any]"


@dataclass(frozen=True)
class Watch:
    """An order: follow each script once for `limit` seconds.

    The answers: the number of connections that are not over, again and again, and at last a `list[Seen]`.
    """

    target: Target
    scripts: list[Script]
    limit: float


@dataclass(frozen=True)
class Crowd:
    """An order: keep `connections` of a script open until the next message, and open a new one for each that ends.

    In the role "flood": close each as soon as it is open, and open the next. The answers: "standing", when all are open
    or no more can be had; at the end the number of all that were opened, and the failures by their text.
    """

    target: Target
    script: Script
    connections: int


def main(channel: Channel) -> None:
    """Follow the parent's orders until it has gone."""
    while True:
        order = channel.recv()
        if isinstance(order, Watch):
            channel.send(follow(order, partial(_report, channel)))
        elif isinstance(order, Crowd):
            channel.send(_Gathering(order, channel).hold())


def _report(channel: Channel, left: int) -> bool:
    """Tell the parent that so many are open; True if it has said anything, which `main` takes, or has gone."""
    channel.send(left)
    return channel.poll()


def follow(order: Watch, stopped: Callable[[int], bool] = lambda left: False) -> list[Seen]:
    """Return what was seen of each script.

    `stopped` is called now and then with the number of connections that are not over. Where there is no epoll
    (loop.py), a script that neither reads nor sends shows no end.
    """
    loop, seen, knocks = Loop(), list[Seen](), list[_Knock]()
    context = order.target.context()

    def ended(one: Seen) -> None:
        if one.seconds is None:
            seen.append(one)
        else:
            knocks.append(_Knock(one, order.target, loop, seen.append))

    probes = [Probe(script, order.target, context, loop, order.limit, ended) for script in order.scripts]
    begun = reported = monotonic()
    for number, probe in enumerate(probes):
        loop.at(begun + number * SPACING, probe.start)
    try:
        while len(seen) < len(probes):
            loop.turn(reported + REPORT)
            if monotonic() >= reported + REPORT:
                reported = monotonic()
                if stopped(len(probes) - len(seen)):
                    break
    finally:
        for probe in probes:
            probe.stop(monotonic())
        for knock in knocks:
            knock.stop(monotonic())
        loop.close()
    return seen


class _Knock(Line):
    """A connection that is only opened, where the server has ended another: one that refuses it has ended itself.

    `report` is called once, with what was seen of the other.
    """

    def __init__(self, seen: Seen, target: Target, loop: Loop, report: Callable[[Seen], object]) -> None:
        super().__init__(target, None, loop)
        self._seen = seen
        self._report = report
        self.later(monotonic() + KNOCKING, self.stop)
        self.connect()

    def stop(self, now: float) -> None:
        """End it, unless it has ended, as one that was not refused."""
        self.on_trouble("", now)

    def on_open(self, now: float) -> None:
        self.stop(now)

    def on_events(self, mask: int, now: float, wrong: float) -> None:
        """Do nothing: it is closed as soon as it is open."""

    def on_trouble(self, kind: str, now: float) -> None:
        if self._next is not None:  # it is not closed
            self.close()
            self._report(replace(self._seen, trouble=DOWN) if kind == _REFUSED else self._seen)


class _Gathering:
    def __init__(self, order: Crowd, channel: Channel) -> None:
        self._order = order
        self._floods = order.script.role == "flood"
        self._channel = channel
        self._context = order.target.context()
        self._loop = Loop()
        self._loop.watch(channel.fileno(), EPOLLIN, self._on_message)
        self._stopped = False
        self._probes: set[Probe] = set()
        self._opened = 0
        self._failures: Counter[str] = Counter()

    def hold(self) -> tuple[int, Counter[str]]:
        """Open the connections, report, and hold them until told to stop."""
        begun = monotonic()
        spacing = AGAIN / self._order.connections if self._floods else CROWD_SPACING
        for number in range(self._order.connections):
            self._loop.at(begun + number * spacing, self._open)
        while not self._stopped and not self._all_stand() and monotonic() < begun + STANDING:
            self._loop.turn(monotonic() + 0.1)
        self._channel.send("standing")
        while not self._stopped:
            self._loop.turn(monotonic() + 60.0)
        for probe in list(self._probes):
            probe.stop(monotonic())
        self._loop.close()
        return self._opened, self._failures

    def _on_message(self, mask: int, now: float, error: float) -> None:
        """Stop: the parent has said something, which `main` takes, or has gone."""
        self._stopped = True

    def _all_stand(self) -> bool:
        opening = any(not probe.attacks for probe in self._probes)
        return self._floods or (self._opened >= self._order.connections and not opening)

    def _open(self, now: float) -> None:
        if self._stopped or self._opened >= self._order.connections * REOPENED:
            return
        self._opened += 1
        # an hour: until the crowd is told to stop
        limit = PASSING if self._floods else 3600.0

        def ended(seen: Seen) -> None:
            self._probes.discard(probe)
            if seen.trouble:
                self._failures[seen.trouble] += 1
            if not self._stopped:
                self._loop.at(max(monotonic(), now + AGAIN), self._open)

        probe = Probe(self._order.script, self._order.target, self._context, self._loop, limit, ended)
        self._probes.add(probe)
        probe.start(now)
