"""A poller whose clock, kernel and waiters are played by the test."""

from __future__ import annotations

import math
import resource
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from deadlined import Conn
from deadlined.poll import PARKED, FakePort, Half, PollDesc, Poller, Port
from deadlined.runtime import current_host
from deadlined.timers.heap4 import Heap4

INF = math.inf
NOW = 100.0
PAST = NOW - 1
SOON = NOW + 1
LATER = NOW + 2
FD = 4


class Rig:
    """A `Poller` on a `FakePort`. `now` is its clock; `wakes` and `kicks` say what it asked for, in order."""

    def __init__(self, port: FakePort | None = None) -> None:
        self.now = NOW
        self.port = FakePort() if port is None else port
        self.wakes: list[Any] = []
        self.kicks: list[float] = []
        self.poller = Poller(self.port, lambda: self.now, self.wakes.append, self.kicks.append)

    def open_parked(self, fd: int) -> PollDesc:
        """Open a descriptor with the waiters "reader" and "writer", or "reader 4" and so on beside another one."""
        desc = self.poller.open(fd)
        suffix = f" {fd}" if len(self.port.watched) > 1 else ""
        park(desc.read, "reader" + suffix)
        park(desc.write, "writer" + suffix)
        return desc

    def deliver(self, *events: tuple[int, int]) -> None:
        """Deliver one batch of events."""
        for fd, mask in events:
            self.port.post(fd, mask)
        self.poller.poll(0.0)

    def pass_to(self, when: float) -> None:
        """Advance the clock to `when`, then poll."""
        self.now = when
        self.poller.poll(0.0)

    def woken(self) -> list[Any]:
        """Return the waiters woken since the last call."""
        wakes = list(self.wakes)
        self.wakes.clear()
        return wakes

    def kicked(self) -> list[float]:
        """Return the kicks since the last call."""
        kicks = list(self.kicks)
        self.kicks.clear()
        return kicks


def park(half: Half, waiter: Any) -> None:
    """Park; fail if the half does not park."""
    assert half.park(waiter) == PARKED


def assert_sound(poller: Poller, *descs: PollDesc) -> None:
    """Check every invariant between the halves of `descs`, which are all that the poller has, and its heap."""
    heap = poller.timers._queue
    assert isinstance(heap, Heap4)
    stored = heap._timers
    assert heap._keys == [timer.key for timer in stored]
    assert [timer.index for timer in stored] == list(range(len(stored)))
    ranks = [(timer.key, timer.order) for timer in stored]
    assert all(ranks[(i - 1) // 4] < ranks[i] for i in range(1, len(ranks)))
    assert poller.timers.zombies == sum(timer.zombie for timer in stored)
    pending = {id(half) for desc in descs for half in (desc.read, desc.write) if half.pending}
    assert pending == {id(timer) for timer in stored if timer.pending}


@contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give two connected non-blocking sockets, and close them at the end."""
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        yield left, right


@asynccontextmanager
async def conn_pair() -> AsyncIterator[tuple[Conn, Conn]]:
    """Give two connected `Conn`s, and close them at the end."""
    left, right = (Conn.from_socket(end) for end in socket.socketpair())
    async with left, right:
        yield left, right


@contextmanager
def many_descriptors(number: int) -> Iterator[None]:
    """Let the process open `number` descriptors beside the usual ones."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number + 200
    if hard < wanted:
        pytest.skip(f"needs {wanted} descriptors, {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Setter:
    """How the tests set a deadline: its method has a twin, written out for speed."""

    name = "set_deadline"


def move(target: Half | PollDesc, when: float) -> object:
    """Set the deadline; the result is the method's, which is none."""
    half = target.read if isinstance(target, PollDesc) else target
    argument = when if Setter.name == "set_deadline" else when - half.poller.clock.now()
    result: object = getattr(target, Setter.name)(argument)
    return result


def entry(half: Half) -> tuple[float, float, int]:
    """Everything that the queue knows of a half's deadline."""
    return half.when, half.key, half.order


class RefusingPort:
    """A port that refuses to watch descriptors: it raises `errors` in turn, and serves as `port` after them."""

    def __init__(self, port: Port, errors: Sequence[Exception]) -> None:
        self._port = port
        self._errors = list(errors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def register(self, fd: int) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self._port.register(fd)


def refuse_to_watch(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """Let the running event loop's poller raise `errors` in turn when it is to watch a descriptor."""
    poller = current_host().poller
    monkeypatch.setattr(poller, "port", RefusingPort(poller.port, errors))
