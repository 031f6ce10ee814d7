"""What the timer tests share: the invariants of a facility, and a callback that writes down how it was called."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from deadlined.timers import Timer, Timers
from deadlined.timers.heap4 import Heap4

INF = math.inf
ENDLESS = 20_000  # firings of one check, more than any test asks for


class Firing(NamedTuple):
    """One call of a callback."""

    arg: Any
    seq: int
    lateness: float


class Journal:
    """Callbacks that write one `Firing` each into `firings`, in the order of the calls."""

    def __init__(self) -> None:
        self.firings: list[Firing] = []

    def __call__(self, arg: Any, seq: int, lateness: float) -> None:
        # pytest's failure is no Exception: it passes through a check that would otherwise never return
        if len(self.firings) >= ENDLESS:
            pytest.fail("the check does not end")
        self.firings.append(Firing(arg, seq, lateness))

    def timer(self, arg: Any = None) -> Timer:
        return Timer(self, arg)

    def timer_that(self, arg: Any, act: Callable[[], object]) -> Timer:
        """A timer that is written down and then calls `act`."""

        def callback(arg: Any, seq: int, lateness: float) -> None:
            self(arg, seq, lateness)
            act()

        return Timer(callback, arg)

    def args(self) -> list[Any]:
        """Who has fired since the last call of `args`."""
        args = [firing.arg for firing in self.firings]
        self.firings.clear()
        return args


def assert_heap(heap: Heap4) -> None:
    """Heap order by (key, order), keys beside their timers, each timer once and at its index."""
    keys, stored = heap._keys, heap._timers
    assert len(heap) == len(keys) == len(stored)
    assert [timer.index for timer in stored] == list(range(len(stored)))
    assert [timer.key for timer in stored] == keys
    assert all(key < INF for key in keys)
    ranks = [(timer.key, timer.order) for timer in stored]
    assert all(ranks[(i - 1) // 4] < ranks[i] for i in range(1, len(ranks)))


def assert_sound(timers: Timers, known: Iterable[Timer]) -> None:
    """Every invariant of a facility that no check is running in; `known` are all timers that may be stored in it."""
    heap = timers._queue
    assert isinstance(heap, Heap4)
    assert_heap(heap)
    mine = [timer for timer in known if timer.owner is timers]
    stored = heap._timers
    assert {id(timer) for timer in stored} == {id(timer) for timer in mine if timer.key < INF}
    assert all(timer.key <= timer.when for timer in stored)
    assert all(timer.index == -1 for timer in mine if timer.key == INF)
    pending = [timer for timer in mine if timer.pending]
    assert all(timer.key < INF for timer in pending), "a pending timer has lost its entry"
    assert timers.zombies == sum(timer.zombie for timer in stored)
    assert len(timers) == len(stored) == len(pending) + timers.zombies
