"""The invariants of a timer facility and of each queue, and a journal of the callbacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from deadlined.timers import SCHEMES, Scheme, Timer, Timers
from deadlined.timers.clockwork import Clockwork
from deadlined.timers.heap import Heap
from deadlined.timers.kernel import KernelWheel
from deadlined.timers.ordered import SortedList
from deadlined.timers.slots import Slots
from deadlined.timers.ticks import tick_from
from deadlined.timers.tree import Node, Tree
from deadlined.timers.unsorted import UnsortedList

INF = math.inf
MINUTE = 60.0
HOUR = 3600.0
QUEUES = sorted(SCHEMES)
EXACT = [name for name in QUEUES if Timers(name).granularity == 0.0]
WHEELS = [name for name in QUEUES if name not in EXACT]
ENDLESS = 20_000  # firings of one check, more than any test asks for


class Firing(NamedTuple):
    """One call of a callback."""

    arg: Any
    seq: int
    lateness: float


class Journal:
    """Callbacks that append a `Firing` each to `firings`."""

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
        """Return a timer that is entered in the journal and then calls `act`."""

        def callback(arg: Any, seq: int, lateness: float) -> None:
            self(arg, seq, lateness)
            act()

        return Timer(callback, arg)

    def args(self) -> list[Any]:
        """Return the arguments of the timers fired since the last call."""
        args = [firing.arg for firing in self.firings]
        self.firings.clear()
        return args


def unused(arg: object, seq: int, lateness: float) -> None:
    raise AssertionError("a scheme calls no callback")


class Filer:
    """A queue and the facility's part: numbers for the order of entry, and `when` for what is wanted."""

    def __init__(self, queue: Scheme, keys: Iterable[float] = ()) -> None:
        self.queue = queue
        self.entered = 0
        self.timers = [self.add(key) for key in keys]

    def add(self, key: float) -> Timer:
        timer = Timer(unused)
        self.move(timer, key)
        return timer

    def move(self, timer: Timer, key: float) -> None:
        self.entered += 1
        timer.order = self.entered
        timer.when = key
        self.queue.file(timer, key)

    def drain(self, now: float = INF) -> list[Timer]:
        """Remove and return the timers due at `now`; check that `first` and `wake_time` announce each."""
        drained = []
        while (timer := self.queue.due(now)) is not None:
            assert timer.key <= now
            assert self.queue.first() is timer
            assert self.queue.wake_time() == timer.key
            assert self.queue.remove_first() is timer
            assert (timer.key, timer.index, timer.slot) == (INF, -1, -1)
            assert_queue(self.queue)
            drained.append(timer)
        return drained


def in_order(timers: Iterable[Timer]) -> list[Timer]:
    return sorted(timers, key=lambda timer: (timer.when, timer.order))


def assert_heap(heap: Heap) -> list[Timer]:
    """Heap order by (key, order), keys beside their timers, each timer once and at its index; what is stored."""
    keys, stored = heap._keys, heap._timers
    arity = heap._arity
    assert len(heap) == len(keys) == len(stored)
    assert [timer.index for timer in stored] == list(range(len(stored)))
    assert all(timer.slot == -1 for timer in stored)
    assert [timer.key for timer in stored] == keys
    ranks = [(timer.key, timer.order) for timer in stored]
    assert all(ranks[(i - 1) // arity] < ranks[i] for i in range(1, len(ranks)))
    return stored


def assert_sorted(queue: SortedList) -> list[Timer]:
    """Falling by (key, order), keys beside their timers, each timer with the order that it was filed with."""
    keys, stored = queue._keys, queue._timers
    assert [timer.key for timer in stored] == keys
    assert [timer.index for timer in stored] == [timer.order for timer in stored]
    ranks = [(timer.key, timer.order) for timer in stored]
    assert ranks == sorted(ranks, reverse=True)
    return stored


def assert_tree(tree: Tree) -> list[Timer]:
    """A search tree by (key, order) and a heap by priority, of the size and with the first that it says."""
    nodes: list[Node] = []

    def visit(node: Node | None, highest: int) -> None:
        if node is not None:
            assert node.priority <= highest
            visit(node.left, node.priority)
            nodes.append(node)
            visit(node.right, node.priority)

    visit(tree._root, 2**31)
    ranks = [(node.key, node.order) for node in nodes]
    assert ranks == sorted(set(ranks))
    assert ranks == [(node.timer.key, node.timer.index) for node in nodes]
    assert [node.timer.order for node in nodes] == [node.order for node in nodes]
    assert len(nodes) == tree._size
    assert tree._first is (nodes[0] if nodes else None)
    return [node.timer for node in nodes]


def assert_slots(slots: Slots) -> list[Timer]:
    """No empty bag, a bit for each, every timer at its place; what is stored."""
    assert slots.occupied == sum(1 << number for number in slots._bags)
    for number, bag in slots._bags.items():
        assert bag
        assert [(timer.slot, timer.index) for timer in bag] == [(number, index) for index in range(len(bag))]
    stored = [timer for bag in slots._bags.values() for timer in bag]
    assert len(stored) == slots.size
    return stored


def assert_unsorted(queue: UnsortedList) -> list[Timer]:
    """The timer that is remembered as the earliest is in the bag, and none is earlier."""
    waiting = assert_slots(queue._waiting)
    assert queue._earliest is None or (
        queue._earliest in waiting and queue._earliest.key == min(t.key for t in waiting)
    )
    return waiting + assert_heap(queue._due)


def slot_comes(wheel: KernelWheel, slot: int) -> int:
    """Return the tick at which a slot comes next, the present one included."""
    level, place = divmod(slot, 64)
    position = -(-wheel._turned >> 3 * level)
    return position + (place - position) % 64 << 3 * level


def assert_clockwork(wheel: Clockwork) -> list[Timer]:
    """No occupied slot has passed, the next one is known, and no timer has to wait for a slot that comes too late."""
    slots = assert_slots(wheel._slots)
    arrivals = [timer for timer in slots if timer.slot == wheel._arrivals]
    placed = [timer for timer in slots if timer.slot < wheel._arrivals]
    assert (wheel._soonest is None) == (not arrivals)
    assert wheel._soonest is None or wheel._soonest in arrivals
    assert wheel._soonest is None or wheel._soonest.key == min(timer.key for timer in arrivals)
    assert (wheel._next_slot == -1) == (not placed)
    assert wheel._next_slot == -1 or any(timer.slot == wheel._next_slot for timer in placed)
    # two levels may have a slot at the same tick: either is the next one
    assert wheel._next_tick == wheel._next_turn()[0]
    assert wheel._next_tick >= wheel._turned
    if not wheel.coarseness:
        for timer in placed:
            number = tick_from(timer.key, wheel.tick)
            assert wheel._turned < number
            assert wheel._next_tick <= number
    if isinstance(wheel, KernelWheel):
        # late by an eighth at most, which the lateness tests measure; here: never early
        for timer in placed:
            assert slot_comes(wheel, timer.slot) >= tick_from(timer.key, wheel.tick)
        assert wheel._next_slot == -1 or slot_comes(wheel, wheel._next_slot) == wheel._next_tick
    return slots + assert_heap(wheel._heap)


def assert_queue(queue: Scheme) -> list[Timer]:
    """Check every invariant of a queue; return the timers stored in it."""
    if isinstance(queue, Heap):
        stored = assert_heap(queue)
    elif isinstance(queue, SortedList):
        stored = assert_sorted(queue)
    elif isinstance(queue, Tree):
        stored = assert_tree(queue)
    elif isinstance(queue, UnsortedList):
        stored = assert_unsorted(queue)
    else:
        assert isinstance(queue, Clockwork)
        stored = assert_clockwork(queue)
    assert len(queue) == len(stored) == len({id(timer) for timer in stored})
    assert all(timer.key < INF for timer in stored)
    return stored


def wakes_for(timers: Timers, wake: float, when: float) -> bool:
    """Return True if `wake` is the wake time for a timer at `when`, a whole number of ticks."""
    return wake < when if timers.wakes_early and wake != when else wake == when


def assert_sound(timers: Timers, known: Iterable[Timer]) -> None:
    """Check every invariant of a facility outside of a check; `known` are all timers that it may store."""
    stored = assert_queue(timers._queue)
    mine = [timer for timer in known if timer.owner is timers]
    assert {id(timer) for timer in stored} == {id(timer) for timer in mine if timer.key < INF}
    assert all(timer.key <= timer.when for timer in stored)
    assert all((timer.index, timer.slot) == (-1, -1) for timer in mine if timer.key == INF)
    pending = [timer for timer in mine if timer.pending]
    assert all(timer.key < INF for timer in pending), "a pending timer has lost its entry"
    assert timers.zombies == sum(timer.zombie for timer in stored)
    assert len(timers) == len(stored) == len(pending) + timers.zombies


def stored_state(timers: Timers) -> tuple[list[tuple[int, float, int, int]], int]:
    """Return everything that an operation of the queue would change: keys, places, and the number of entries so far."""
    stored = assert_queue(timers._queue)
    return [(id(timer), timer.key, timer.slot, timer.index) for timer in stored], timers._order
