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

import errno
import os
import select
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from struct import pack
from time import monotonic, thread_time
from typing import Any

import httptools
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped,unused-ignore]

from ..target import Target
from ..wire import Answers
from .schedule import Schedule

# microseconds; three digits are kept
_SHORTEST, _LONGEST, _DIGITS = 1, 3_600_000_000, 3
# seconds between two looks for requests that have waited too long
_SWEEP = 0.05

_READ = select.EPOLLIN | select.EPOLLRDHUP


def histogram() -> HdrHistogram:
    """Return an empty histogram of microseconds."""
    return HdrHistogram(_SHORTEST, _LONGEST, _DIGITS)


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
class Tally:
    """The counts of one process, complete when its run is over.

    `errors` by kind. `latency`: of all requests that were answered, or waited until the patience was over; `lag`: how
    late the process noticed that a request was due; both in microseconds. `seconds` from the start to the last answer;
    `cpu`: seconds of processor time, of these.
    """

    due: int = 0
    sent: int = 0
    ok: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    latency: HdrHistogram = field(default_factory=histogram)
    lag: HdrHistogram = field(default_factory=histogram)
    seconds: float = 0.0
    cpu: float = 0.0
    interrupted: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """Give what goes to another process: the library's histograms go encoded only."""
        return {**self.__dict__, "latency": self.latency.encode(), "lag": self.lag.encode()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.latency, self.lag = HdrHistogram.decode(state["latency"]), HdrHistogram.decode(state["lag"])


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
        self.tally.cpu = thread_time() - cpu
        return self.tally

    def _loop(self, start: float, stopped: Callable[[], bool]) -> None:
        schedule = self._load.schedule
        number, total = 0, len(schedule)
        due = start + schedule.when(0) if total else start
        sweep = start
        while number < total or self._backlog or self._busy():
            now = monotonic()
            while number < total and due <= now:
                self._record(self.tally.lag, now - due)
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
            self._fail(connection, _kind(error))
        else:
            self.tally.sent += 1

    def _answered(self, connection: _Connection, now: float) -> None:
        assert connection.due is not None
        self._record(self.tally.latency, now - connection.due)
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
                self._record(self.tally.latency, now - connection.due)
                self._fail(connection, "no answer in time")
        while self._backlog and self._backlog[0] < oldest:
            self._record(self.tally.latency, now - self._backlog.popleft())
            self.tally.errors["not sent in time"] += 1

    # connections

    def _connect(self, due: float) -> None:
        try:
            plain = socket.socket(self._load.target.family, socket.SOCK_STREAM)
        except OSError as error:
            self.tally.errors[_kind(error)] += 1
            return
        connection = _Connection(plain, due)
        self._connections[plain.fileno()] = connection
        plain.setblocking(False)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._epoll.register(plain.fileno(), select.EPOLLOUT)
        code = plain.connect_ex(self._load.target.address)
        if code not in (0, errno.EINPROGRESS):
            self._fail(connection, os.strerror(code))

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
        if code := connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._fail(connection, os.strerror(code))
            return
        try:
            if self._context is not None:
                self._shake(connection, self._context)
        except ssl.SSLWantReadError:
            self._epoll.modify(connection.socket.fileno(), _READ)
        except ssl.SSLWantWriteError:
            self._epoll.modify(connection.socket.fileno(), select.EPOLLOUT)
        except OSError as error:
            self._fail(connection, _kind(error))
        else:
            connection.open = True
            self._epoll.modify(connection.socket.fileno(), _READ)
            self._send(connection)

    def _shake(self, connection: _Connection, context: ssl.SSLContext) -> None:
        if not isinstance(connection.socket, ssl.SSLSocket):
            name = self._load.target.host
            connection.socket = context.wrap_socket(
                connection.socket, server_hostname=name, do_handshake_on_connect=False
            )
        assert isinstance(connection.socket, ssl.SSLSocket)
        connection.socket.do_handshake()

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
            self._fail(connection, _kind(error))
            return
        answers.end()
        if answers.complete and not answers.keeps_alive:
            self._answered(connection, now)
        else:
            self._fail(connection, "closed without an answer")

    def _drop(self, connection: _Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        with suppress(OSError):
            # no TIME_WAIT: a connection per request would use up the ports
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        connection.socket.close()

    def _record(self, into: HdrHistogram, seconds: float) -> None:
        into.record_value(min(_LONGEST, max(_SHORTEST, round(seconds * 1e6))))


def _kind(error: OSError) -> str:
    """Return a short name of an error, the same for all of its kind."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    return os.strerror(error.errno) if error.errno else str(error)
