"""The open loop of one process: each request is due at its time, and its latency counts from that time.

Facts      A client that waits for a response before it asks again stops asking when the server stalls, and counts one
           slow request where a thousand were due (coordinated omission).
Hazard     The same would happen here whenever all connections are busy, or this process is late itself.
Answer     A request that finds no connection waits in a queue, and its latency counts from the time it was due. What
           was never answered counts, too, with the time that it waited. How late this process was to notice that a
           request was due is counted apart: if that is much, the figures are not the server's (result.py).
Cost       One process asks some 10,000 times a second.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, thread_time
from typing import ClassVar

import httptools
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped,unused-ignore]

from .. import dial
from ..histogram import Counts, histogram, record
from ..target import Target
from ..wire import Answers
from .schedule import Schedule

# seconds between two looks for requests that have waited too long
_SWEEP = 0.05

_READ = select.EPOLLIN | select.EPOLLRDHUP


@dataclass(frozen=True)
class Load:
    """What one process asks. `connections`: open at once at most; `patience`: seconds that a request may take.

    `reuse`: ask again on the same connection.
    """

    target: Target
    schedule: Schedule
    connections: int
    patience: float
    reuse: bool = True


@dataclass
class Tally(Counts):
    """The counts of one process, complete when its run is over.

    `errors` by kind. `latency`: of all requests that were answered, or waited until the patience was over; `lag`: how
    late the process noticed that a request was due; both in microseconds. `seconds` from the start to the last answer;
    `busy`: the part of a processor that was used in them.
    """

    largest: ClassVar = frozenset({"seconds", "busy", "interrupted"})

    due: int = 0
    sent: int = 0
    ok: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    latency: HdrHistogram = field(default_factory=histogram)
    lag: HdrHistogram = field(default_factory=histogram)
    seconds: float = 0.0
    busy: float = 0.0
    interrupted: bool = False


class _Connection:
    """A connection, and the request that it carries: `due` is None while there is none."""

    __slots__ = ("answers", "due", "open", "socket")

    def __init__(self, endpoint: socket.socket, due: float) -> None:
        self.socket = endpoint
        self.due: float | None = due
        self.answers = Answers()
        self.open = False  # connected, and past the handshake


class Client:
    """One process's open loop. `run` does all."""

    def __init__(self, load: Load) -> None:
        self.tally = Tally()
        self._load = load
        self._request = load.target.get(*([] if load.reuse else ["Connection: close"]))
        self._context = load.target.context()
        self._epoll = select.epoll()
        self._connections: dict[int, _Connection] = {}
        self._idle: list[_Connection] = []
        self._backlog: deque[float] = deque()

    def run(self, start: float, stopped: Callable[[], bool] = lambda: False) -> Tally:
        """Ask from `start` on, on the clock of `time.monotonic`, until all is answered or `stopped` says so."""
        cpu = thread_time()
        try:
            self._loop(start, stopped)
        except KeyboardInterrupt:
            self.tally.interrupted = True
        finally:
            for connection in list(self._connections.values()):
                self._drop(connection)
            self._epoll.close()
        self.tally.seconds = max(monotonic() - start, 1e-9)
        self.tally.busy = (thread_time() - cpu) / self.tally.seconds
        return self.tally

    def _loop(self, start: float, stopped: Callable[[], bool]) -> None:
        schedule = self._load.schedule
        number, total = 0, len(schedule)
        due = start + schedule.when(0) if total else start
        sweep = start
        while number < total or self._backlog or self._busy():
            now = monotonic()
            while number < total and due <= now:
                record(self.tally.lag, now - due)
                self.tally.due += 1
                self._backlog.append(due)
                number += 1
                due = start + schedule.when(number)
            self._send_waiting()
            if now >= sweep:
                sweep = now + _SWEEP
                self._sweep(now)
                if stopped():
                    self.tally.interrupted = True
                    return
            self._poll(min(sweep, due) if number < total else sweep)

    def _busy(self) -> bool:
        return len(self._connections) > len(self._idle)

    def _poll(self, until: float) -> None:
        # epoll's own timeout counts in milliseconds and is rounded up, which latency would show; that of select is not
        select.select([self._epoll], [], [], max(0.0, until - monotonic()))
        for descriptor, mask in self._epoll.poll(0):
            if connection := self._connections.get(descriptor):
                self._on_event(connection, mask)

    # requests

    def _send_waiting(self) -> None:
        """Give the requests that are due to idle connections, and to new ones."""
        while self._backlog:
            if self._idle:
                connection = self._idle.pop()
                connection.due = self._backlog.popleft()
                self._send(connection)
            elif len(self._connections) < self._load.connections:
                self._connect(self._backlog.popleft())
            else:
                return

    def _send(self, connection: _Connection) -> None:
        try:
            connection.socket.send(self._request)
        except OSError as error:
            self._fail(connection, dial.trouble(error))
        else:
            self.tally.sent += 1

    def _answered(self, connection: _Connection, now: float) -> None:
        assert connection.due is not None
        record(self.tally.latency, now - connection.due)
        status = connection.answers.status or 0
        if 200 <= status < 400:
            self.tally.ok += 1
        else:
            self.tally.errors[f"status {status}"] += 1
        connection.due = None
        if self._load.reuse and connection.answers.keeps_alive:
            self._idle.append(connection)
        else:
            self._drop(connection)

    def _fail(self, connection: _Connection, kind: str) -> None:
        if connection.due is not None:
            self.tally.errors[kind] += 1
        else:
            self._idle.remove(connection)
        connection.due = None
        self._drop(connection)

    def _sweep(self, now: float) -> None:
        """Give up what has waited too long. It counts with the time that it waited."""
        oldest = now - self._load.patience
        for connection in list(self._connections.values()):
            if connection.due is not None and connection.due < oldest:
                record(self.tally.latency, now - connection.due)
                self._fail(connection, "no answer in time")
        while self._backlog and self._backlog[0] < oldest:
            record(self.tally.latency, now - self._backlog.popleft())
            self.tally.errors["not sent in time"] += 1

    # connections

    def _connect(self, due: float) -> None:
        try:
            endpoint = dial.made(self._load.target)
        except OSError as error:
            self.tally.errors[dial.trouble(error)] += 1
            return
        connection = _Connection(endpoint, due)
        self._connections[endpoint.fileno()] = connection
        self._epoll.register(endpoint.fileno(), select.EPOLLOUT)
        try:
            dial.begin(endpoint, self._load.target)
        except OSError as error:
            self._fail(connection, dial.trouble(error))

    def _on_event(self, connection: _Connection, mask: int) -> None:
        if not connection.open:
            self._continue_opening(connection)
        elif connection.due is None:
            # the server has closed it between two requests, or has sent what was not asked for
            self._idle.remove(connection)
            self._drop(connection)
        else:
            self._read(connection)

    def _continue_opening(self, connection: _Connection) -> None:
        try:
            connection.socket, wanted = dial.proceed(connection.socket, self._load.target, self._context)
        except OSError as error:
            self._fail(connection, dial.trouble(error))
            return
        self._epoll.modify(connection.socket.fileno(), wanted or _READ)
        if not wanted:
            connection.open = True
            self._send(connection)

    def _read(self, connection: _Connection) -> None:
        now = monotonic()
        answers = connection.answers
        try:
            while data := connection.socket.recv(65536):
                before = answers.count
                answers.feed(data, now)
                if answers.count > before:
                    self._answered(connection, now)
                    return
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except httptools.HttpParserError:
            self._fail(connection, "no HTTP")
            return
        except OSError as error:
            self._fail(connection, dial.trouble(error))
            return
        answers.end()
        if answers.complete and not answers.keeps_alive:
            self._answered(connection, now)
        else:
            self._fail(connection, "closed without an answer")

    def _drop(self, connection: _Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        # no TIME_WAIT: a connection per request would use up the ports
        dial.close(connection.socket, reset=True)
