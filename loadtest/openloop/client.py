"""The open loop of one process: each request is due at its time, and its latency counts from that time.

Facts      A client that waits for a response before it asks again stops asking when the server stalls, and counts one
           slow request where a thousand were due (coordinated omission).
Hazard     The same would happen here whenever all connections are busy, or this process is late itself.
Answer     A request that finds no connection waits in a queue, and its latency counts from the time it was due. What
           was never answered counts, too, with the time that it waited. How late this process was to notice that a
           request was due is counted apart: if that is much, the figures are not the server's (histogram.py).
Cost       One process asks some 10,000 times a second.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import ClassVar

from .. import histogram
from ..histogram import record
from ..line import Line, trouble
from ..loop import Loop
from ..target import Target

# requests per second that one process asks with half of a processor
PER_PROCESS = 8000.0
# seconds between two looks for requests that have waited too long
_SWEEP = 0.05


@dataclass(frozen=True)
class Plan:
    """Requests at `rate` per second for `duration` seconds; with `ramp` the rate grows from nothing to `rate`.

    `connections`: open at once at most; `patience`: seconds that a request may take; `reuse`: ask again on the same
    connection. `processes`: 0 for as many as the rate needs. One of `parts` processes takes every `parts`-th request,
    from the `part`-th on.
    """

    target: Target
    rate: float
    duration: float
    connections: int
    patience: float
    ramp: bool = False
    processes: int = 0
    reuse: bool = True
    part: int = 0
    parts: int = 1

    @property
    def clients(self) -> int:
        """The number of processes: at most one per connection, and one per processor unless told."""
        wanted = self.processes or min(len(os.sched_getaffinity(0)), math.ceil(self.rate / PER_PROCESS))
        return max(1, min(wanted, self.connections))

    def share(self, part: int) -> Plan:
        """Return what the process of this number does."""
        connections = self.connections // self.clients + (part < self.connections % self.clients)
        return replace(self, connections=connections, part=part, parts=self.clients)

    @property
    def requests(self) -> int:
        """The number of requests of this part."""
        total = math.floor(self.rate * self.duration / (2 if self.ramp else 1) + 1e-9)
        return max(0, -(-(total - self.part) // self.parts))

    def when(self, number: int) -> float:
        """Return the seconds from the start to this part's request of that number, from 0 on."""
        arrival = number * self.parts + self.part
        if self.ramp:
            # rate * t**2 / (2 * duration) have come by the time t
            return math.sqrt(2 * self.duration * arrival / self.rate)
        return arrival / self.rate


@dataclass
class Tally(histogram.Tally):
    """The counts of one process, complete when its run is over.

    `latency`: of all requests that were answered, or waited until the patience or the run was over; `late`: how late
    the process noticed that a request was due. `last`: seconds from the start to the last proper response.
    """

    largest: ClassVar = histogram.Tally.largest | {"last"}

    due: int = 0
    sent: int = 0
    ok: int = 0
    last: float = 0.0


class _Connection(Line):
    """A connection, and the request that it carries: `due` is None while there is none."""

    def __init__(self, client: Client, due: float) -> None:
        super().__init__(client.plan.target, client.context, client.loop)
        self.due: float | None = due
        self._client = client

    def on_open(self, now: float) -> None:
        self.send(self._client.request)

    def send(self, request: bytes) -> None:
        """Send a request; what does not fit at once is an error."""
        try:
            self._socket.send(request)
        except OSError as error:
            self._client.fail(self, trouble(error))
        else:
            self._client.tally.sent += 1

    def on_events(self, mask: int, now: float, wrong: float) -> None:
        """Read. Without a request the server has closed the connection, or has sent what was not asked for."""
        if self.due is None:
            self._client.fail(self, "")
            return
        before, ended = self.answers.count, True
        try:
            if ended := self.read(now):
                self.answers.end()
        except OSError:
            # a complete answer may come with a reset
            if self.answers.count == before:
                raise
        if self.answers.count > before:
            self._client.answered(self, now, reuse=self.answers.keeps_alive and not ended)
        elif ended:
            self.on_trouble("closed without an answer", now)

    def on_trouble(self, kind: str, now: float) -> None:
        """Count an error; with the time that it waited, if the request was sent."""
        self._client.fail(self, kind, waited=self._is_open)


class Client:
    """An open loop. `run` does all; the connections use the rest. `tally`: where to count."""

    def __init__(self, plan: Plan, tally: Tally | None = None) -> None:
        self.tally = tally or Tally()
        self.plan = plan
        self.loop = Loop()
        self.request = plan.target.get(*([] if plan.reuse else ["Connection: close"]))
        self.context = plan.target.context()
        self._connections: set[_Connection] = set()
        self._idle: list[_Connection] = []
        self._backlog: deque[float] = deque()
        self._start = 0.0

    def run(self, start: float, stopped: Callable[[], bool] = lambda: False) -> Tally:
        """Ask from `start` on, on the clock of `time.monotonic`, until all is answered or `stopped` says so.

        What still waits then has the latency that it has had until then, and is no error.
        """
        worked = self.loop.worked()
        self._start = start
        try:
            self._ask(start, stopped)
        except KeyboardInterrupt:
            self.tally.interrupted = True
        finally:
            for due in (*self._backlog, *(one.due for one in self._connections if one.due is not None)):
                record(self.tally.latency, monotonic() - due)
            for connection in list(self._connections):
                self._drop(connection)
            self.tally.ended(start, self.loop.worked() - worked)
            self.loop.close()
        return self.tally

    def _ask(self, start: float, stopped: Callable[[], bool]) -> None:
        times = map(self.plan.when, range(self.plan.requests))
        due, sweep = start + next(times, math.inf), start
        while due < math.inf or self._backlog or len(self._connections) > len(self._idle):
            now = monotonic()
            while due <= now:
                record(self.tally.late, now - due)
                self.tally.due += 1
                self._backlog.append(due)
                due = start + next(times, math.inf)
            self._send_waiting()
            if now >= sweep:
                sweep = now + _SWEEP
                self._sweep(now)
                if stopped():
                    self.tally.interrupted = True
                    return
            self.loop.turn(min(sweep, due))

    # requests

    def _send_waiting(self) -> None:
        """Give the requests that are due to idle connections, and to new ones."""
        while self._backlog:
            if self._idle:
                connection = self._idle.pop()
                connection.due = self._backlog.popleft()
                connection.send(self.request)
            elif len(self._connections) < self.plan.connections:
                connection = _Connection(self, self._backlog.popleft())
                self._connections.add(connection)
                connection.connect()
            else:
                return

    def answered(self, connection: _Connection, now: float, *, reuse: bool) -> None:
        """Count a response; keep the connection for another request, if it may be."""
        assert connection.due is not None
        waited, status = now - connection.due, connection.answers.status
        wrong = "" if 200 <= status < 400 else f"status {status}"
        self.count(waited, "no answer in time" if waited > self.plan.patience else wrong)
        connection.due = None
        if self.plan.reuse and reuse:
            self._idle.append(connection)
        else:
            self._drop(connection)

    def fail(self, connection: _Connection, kind: str, *, waited: bool = False) -> None:
        """Drop a connection, and count an error if it carried a request; `waited` is that of `count`."""
        if connection.due is not None:
            self.count(monotonic() - connection.due, kind, waited=waited)
        else:
            self._idle.remove(connection)
        self._drop(connection)

    def count(self, seconds: float, wrong: str, *, waited: bool = True) -> None:
        """Count a request that is over, so many seconds after it was due.

        `wrong`: why it has no proper response, "" if it has. `waited`: the seconds say something of the server.
        """
        if waited:
            record(self.tally.latency, seconds)
        if wrong:
            self.tally.errors[wrong] += 1
        else:
            self.tally.ok += 1
            self.tally.last = monotonic() - self._start

    def _sweep(self, now: float) -> None:
        """Give up what has waited too long. It counts with the time that it waited."""
        oldest = now - self.plan.patience
        for connection in list(self._connections):
            if connection.due is not None and connection.due < oldest:
                self.count(now - connection.due, "no answer in time")
                self._drop(connection)
        while self._backlog and self._backlog[0] < oldest:
            self.count(now - self._backlog.popleft(), "not sent in time")

    def _drop(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        # no TIME_WAIT: a connection per request would use up the ports
        connection.close(reset=True)
