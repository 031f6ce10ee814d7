"""Keep-alive connections: each asks, is silent, and asks again, leaves, or is cut, and then another takes its place.

Facts      The client sees a response a moment after the server's deadline began, and the end a moment after it passed.
           If this process was busy, either moment may have been earlier than the time that it read (loop.py).
Hazard     A response that was read late makes the silence after it look short, and a cut at its deadline look early.
Answer     A cut is early only if it is so with the largest error of the time at which the response was read.
Cost       A busy client misses small errors of the server. How wrong it may have been is in the report.
"""

from __future__ import annotations

import random
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from time import monotonic
from typing import ClassVar, NamedTuple

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped,unused-ignore]

from .. import histogram
from ..histogram import record
from ..line import Line, source
from ..loop import Loop
from ..target import Target
from .profiles import PROFILES, Act

# seconds for a connection, its handshake, and each response
PATIENCE = 10.0
# seconds before its deadline in which a connection is not closed at the end of a run: the server is about to end it
ENDING = 1.0
# what stands for the deadline of a server that has none: seconds
PERIOD = 5.0
# seconds after which one comes back that the server did not want: a churn is no flood
AGAIN = 1.0

# called with each "request" and each "cut", its seconds (those after the deadline of a cut), and what was wrong, or ""
Tell = Callable[[str, float, str], None]


@dataclass(frozen=True)
class Rules:
    """What all connections of a run have in common.

    `deadline`: seconds of silence after which the server ends a connection, give or take `tolerance`; None if it does
    not. `overdue`: seconds of silence that are too long. `watched`: those for which it ended none, if there is no
    deadline. `spread`: come from many addresses of the loopback interface.
    """

    target: Target
    profile: str
    deadline: float | None
    tolerance: float
    overdue: float
    spread: bool
    watched: float = 0.0


class Silent(NamedTuple):
    """A silent connection: the responses so far, and since when; that moment may have been `wrong` seconds earlier."""

    requests: int
    since: float
    wrong: float


class State(Enum):
    """The states of a connection, in their order; SILENT and ASKING alternate."""

    OPENING = auto()
    ASKING = auto()
    SILENT = auto()
    ENDED = auto()


@dataclass
class Tally(histogram.Tally):
    """What the connections of one process saw: counts, and histograms of microseconds.

    `opened`: connections that were established, `most` of them at once. `cut`: by the server while they were silent, by
    how it ended them; `early` of these before their deadline, `early_by` seconds at most; `overdue`: silent for so much
    longer than the deadline that this client closed them. `lost`: requests that were sent before the deadline, and
    answered by a cut; `raced`: the same when the client had spoken too late. `announced`: ended by the server with a
    response that said so. `closed` and `reset`: by this client. `lateness` of the cuts that were not early, after their
    deadline; `wrong`: the largest error of the client's clock for each cut. `stopped`: why the client ended the run
    early, "" if it did not.
    """

    largest: ClassVar = histogram.Tally.largest | {"early_by", "stopped"}

    opened: int = 0
    most: int = 0
    requests: int = 0
    answered: Counter[int] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)
    early: int = 0
    early_by: float = 0.0
    overdue: int = 0
    lost: int = 0
    raced: int = 0
    announced: int = 0
    closed: int = 0
    reset: int = 0
    received: int = 0
    lateness: HdrHistogram = field(default_factory=histogram.histogram)
    wrong: HdrHistogram = field(default_factory=histogram.histogram)
    stopped: str = ""


class Connection(Line):
    """One connection of a crowd, from `start` until it tells the crowd that it has ended.

    `peer`: its own address as the server sees it; `refused`: the server did not want it, or it has failed.
    """

    def __init__(self, number: int, crowd: Crowd) -> None:
        super().__init__(crowd.rules.target, crowd.context, crowd.loop)
        self.number = number
        self.peer = ""
        self.refused = False
        self._state = State.OPENING
        # when the last response was read, and by how much earlier it may have come; 0 before the first
        self._since = self._wrong = 0.0
        self._asked = monotonic()
        self._crowd = crowd

    def silent(self) -> Silent | None:
        """Return what is known of this connection while it is silent; None while it is not."""
        return Silent(self.answers.count, self._since, self._wrong) if self._state is State.SILENT else None

    def start(self, now: float) -> None:
        """Connect. A failure ends the connection."""
        self.later(now + PATIENCE, partial(self.on_trouble, "no connection in time"))
        self.connect(source(self.number) if self._crowd.rules.spread else "")

    def finish(self, now: float) -> None:
        """Leave, or let the server end the connection if it is about to. What waits for an answer goes on waiting."""
        if self._state is not State.SILENT:
            return
        deadline = self._crowd.rules.deadline
        if deadline is None or now < self._since + deadline - ENDING:
            self._leave(Act.CLOSE, now)
        else:
            self.later(self._since + self._crowd.rules.overdue, self._overdue)

    def stop(self, now: float) -> None:
        """Close at once, whatever the state, and count nothing."""
        if self._state is not State.ENDED:
            self._end(now)

    # events

    def on_open(self, now: float) -> None:
        """Note the own address, and ask."""
        host, port = self._socket.getsockname()[:2]
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._crowd.tally.opened += 1
        self._speak(now)

    def on_data(self, data: bytes, now: float) -> None:
        self._crowd.tally.received += len(data)
        super().on_data(data, now)

    def on_events(self, mask: int, now: float, wrong: float) -> None:
        """Read: a response, or the end, or both."""
        before = self.answers.count
        end = self.read_end(now)
        answered = self.answers.count > before
        if self._state is State.ASKING and answered:
            self._answered(now, wrong)
        if end and self._state is not State.ENDED:
            self._ended_by_server("response" if answered and end == "fin" else end, now, wrong)

    def on_trouble(self, kind: str, now: float) -> None:
        """Count an error, and end."""
        self._crowd.tally.errors[kind] += 1
        self._crowd.tell("request", now - self._asked, kind)
        self.refused = True
        self._end(now, reset=True)

    def _speak(self, now: float) -> None:
        """Ask; when all is to end, leave."""
        if self._crowd.finishing:
            self._leave(Act.CLOSE, now)
            return
        self._state = State.ASKING
        self.later(now + PATIENCE, partial(self.on_trouble, "no answer in time"))
        self._asked = monotonic()
        self._crowd.tally.requests += 1
        with suppress(ConnectionError):  # the end is read, and counted, like any
            try:
                self._socket.send(self._crowd.request)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self.on_trouble("a request could not be sent", now)

    # what a connection does

    def _answered(self, now: float, wrong: float) -> None:
        """Be silent, and decide for how long."""
        tally = self._crowd.tally
        status = self.answers.status
        record(tally.latency, now - self._asked)
        tally.answered[status] += 1
        self._crowd.tell("request", now - self._asked, "" if status < 400 else f"status {status}")
        self._state = State.SILENT
        self._since, self._wrong = now, wrong
        if not self.answers.keeps_alive:
            tally.announced += 1
            self.refused = True
            self._end(now)
            return
        if self._crowd.finishing:
            self.finish(now)
            return
        act, when = self._crowd.profile.next(now)
        if act is Act.WAIT:
            self.later(now + self._crowd.rules.overdue, self._overdue)
        else:
            self.later(when, partial(self._act, act, when))

    def _act(self, act: Act, when: float, now: float) -> None:
        record(self._crowd.tally.late, now - when)
        if act is Act.SPEAK:
            self._speak(now)
        else:
            self._leave(act, now)

    def _leave(self, act: Act, now: float) -> None:
        reset = act is Act.RESET
        self._crowd.tally.reset += reset
        self._crowd.tally.closed += not reset
        self._end(now, reset=reset)

    def _ended_by_server(self, how: str, now: float, wrong: float) -> None:
        """Judge an end that the server has made."""
        tally, rules = self._crowd.tally, self._crowd.rules
        silent = (now if self._state is State.SILENT else self._asked) - self._since
        deadline = rules.deadline or 0.0
        earliest = rules.watched if rules.deadline is None else rules.deadline
        early = silent + self._wrong < earliest - rules.tolerance
        if self._state is State.SILENT:
            tally.cut[how] += 1
            record(tally.wrong, max(wrong, self._wrong))
            if early:
                tally.early += 1
                tally.early_by = max(tally.early_by, earliest - silent)
            elif rules.deadline is not None:
                record(tally.lateness, silent - rules.deadline)
            told = f"{earliest - silent:.1f} s before the deadline" if early else ""
            self._crowd.tell("cut", silent - deadline, told)
        elif not self.answers.count:
            self.on_trouble("closed without an answer", now)
            return
        elif early:
            tally.lost += 1
            self._crowd.tell("request", now - self._asked, "lost to a cut")
        else:
            tally.raced += 1
        self._end(now)

    def _overdue(self, now: float) -> None:
        self._crowd.tally.overdue += 1
        self._crowd.tell("cut", now - self._since - (self._crowd.rules.deadline or 0.0), "not cut")
        self._end(now, reset=True)

    def _end(self, now: float, *, reset: bool = False) -> None:
        self._state = State.ENDED
        self.close(reset=reset)
        self._crowd.ended(self, now)


class Crowd:
    """Connections in a loop that come back when they have ended.

    `open`: those that have not ended, by their numbers. `finishing`: none does anything new. `tell` is called with what
    happens.
    """

    def __init__(self, rules: Rules, chance: random.Random, tally: Tally, tell: Tell = lambda *_: None) -> None:
        self.rules = rules
        self.tally = tally
        self.tell = tell
        self.profile = PROFILES[rules.profile](rules.deadline or PERIOD, chance, cuts=rules.deadline is not None)
        self.request = rules.target.get()
        self.context = rules.target.context()
        self.loop = Loop()
        self.open: dict[int, Connection] = {}
        self.finishing = False

    def connect(self, number: int, now: float) -> None:
        if not self.finishing:
            self.open[number] = connection = Connection(number, self)
            self.tally.most = max(self.tally.most, len(self.open))
            connection.start(now)

    def finish(self) -> None:
        """Do nothing new, and let each connection end: every wait has a limit."""
        self.finishing = True
        for connection in list(self.open.values()):
            connection.finish(monotonic())

    def close(self) -> None:
        """Close what is open, and count nothing."""
        self.finishing = True
        for connection in list(self.open.values()):
            connection.stop(monotonic())
        self.loop.close()

    def ended(self, connection: Connection, now: float) -> None:
        """Let another connection take the place of one that has ended."""
        del self.open[connection.number]
        if not self.finishing:
            back = max(self.profile.back(now), now + AGAIN * connection.refused)
            self.loop.at(back, partial(self.connect, connection.number))
