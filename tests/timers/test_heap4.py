"""The 4-ary heap alone, against `sorted()`: it stores, moves, shows, sweeps and gives back by (key, order)."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlined.timers import Timer
from deadlined.timers.heap4 import Heap4
from tests.support.timers import INF, Filer, assert_heap, in_order

# few values, so that many are equal, and those that break careless arithmetic
KEYS = st.one_of(
    st.integers(-3, 3).map(float),
    st.sampled_from([-INF, -1e308, 0.0, -0.0, 5e-324, 1e308]),
    st.floats(allow_nan=False, allow_infinity=False),
)
# sizes around each number of levels: 1, 5 and 21 entries fill a heap of arity 4
SIZES = [0, 1, 2, 3, 4, 5, 6, 7, 20, 21, 22, 23, 85, 86, 200]


class HeapFiler(Filer):
    """A 4-ary heap under a `Filer`."""

    def __init__(self, keys: Iterable[float] = ()) -> None:
        self.heap = Heap4()
        super().__init__(self.heap, keys)


def test_an_empty_heap_wakes_never() -> None:
    heap = Heap4()
    assert (len(heap), heap.wake_time(), heap.sweep(), heap.clear()) == (0, INF, 0, [])


@given(st.lists(KEYS, max_size=60))
def test_what_is_filed_comes_out_sorted(keys: list[float]) -> None:
    filer = HeapFiler(keys)
    assert_heap(filer.heap)
    expected = in_order(filer.timers)
    assert filer.drain() == expected


@given(st.lists(KEYS, min_size=1, max_size=40), st.lists(st.tuples(st.integers(0, 39), KEYS), max_size=40))
def test_a_filed_timer_moves_in_both_directions(keys: list[float], moves: list[tuple[int, float]]) -> None:
    filer = HeapFiler(keys)
    for which, key in moves:
        filer.move(filer.timers[which % len(keys)], key)
        assert len(filer.heap) == len(keys)
        assert_heap(filer.heap)
    expected = in_order(filer.timers)
    assert filer.drain() == expected


@given(st.lists(st.one_of(KEYS, st.just(None)), max_size=80))
def test_filing_and_removing_may_alternate(steps: list[float | None]) -> None:
    filer = HeapFiler()
    stored: list[Timer] = []
    for key in steps:
        if key is not None:
            stored.append(filer.add(key))
        elif stored:
            stored = in_order(stored)
            assert filer.heap.remove_first() is stored.pop(0)
        assert_heap(filer.heap)
        assert len(filer.heap) == len(stored)
    assert filer.drain() == in_order(stored)


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=60))
def test_sweep_takes_out_the_zombies_and_nothing_else(entries: list[tuple[float, bool]]) -> None:
    filer = HeapFiler(key for key, _ in entries)
    zombies = [timer for timer, (_, stopped) in zip(filer.timers, entries, strict=True) if stopped]
    live = [timer for timer, (_, stopped) in zip(filer.timers, entries, strict=True) if not stopped]
    for timer in zombies:
        timer.when = INF
    assert filer.heap.sweep() == len(zombies)
    assert all((timer.key, timer.index) == (INF, -1) for timer in zombies)
    assert_heap(filer.heap)
    assert filer.drain() == in_order(live)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9, 1.0])
def test_sweep_builds_a_heap_of_any_size(size: int, fraction: float) -> None:
    """Zombies in random places leave a random list, from which Floyd's build must reach every parent."""
    rng = random.Random(size)
    filer = HeapFiler(float(rng.randrange(50)) for _ in range(size))
    zombies = rng.sample(filer.timers, int(fraction * size))
    for timer in zombies:
        timer.when = INF
    assert filer.heap.sweep() == len(zombies)
    assert_heap(filer.heap)
    assert filer.drain() == in_order(timer for timer in filer.timers if timer.when < INF)


def test_sweep_keeps_the_key_of_a_timer_that_is_wanted_later() -> None:
    """The queue knows keys only: a lazily extended timer stays where it was filed."""
    filer = HeapFiler([1.0, 2.0])
    filer.timers[0].when = 9.0
    filer.timers[1].when = INF
    filer.heap.sweep()
    assert (filer.heap.first(), filer.heap.wake_time()) == (filer.timers[0], 1.0)


@given(st.lists(KEYS, max_size=40))
def test_clear_gives_back_everything_once(keys: list[float]) -> None:
    filer = HeapFiler(keys)
    cleared = filer.heap.clear()
    assert sorted(map(id, cleared)) == sorted(map(id, filer.timers))
    assert (len(filer.heap), filer.heap.wake_time()) == (0, INF)
    timer = filer.add(1.0)
    assert filer.drain() == [timer]


@pytest.mark.parametrize("size", SIZES)
def test_equal_keys_come_out_in_the_order_of_entry(size: int) -> None:
    filer = HeapFiler([7.0] * size)
    assert filer.drain() == filer.timers


def test_moving_to_the_same_key_means_entering_again() -> None:
    filer = HeapFiler([7.0] * 10)
    again = filer.timers[0]
    filer.move(again, 7.0)
    assert_heap(filer.heap)
    assert filer.drain() == [*filer.timers[1:], again]


@pytest.mark.parametrize("size", [size for size in SIZES if 0 < size < 200])
def test_every_entry_can_become_the_first_and_the_last(size: int) -> None:
    for which in range(size):
        filer = HeapFiler(map(float, range(size)))
        timer = filer.timers[which]
        filer.move(timer, -1.0)
        assert_heap(filer.heap)
        assert filer.heap.first() is timer
        filer.move(timer, math.nextafter(size, INF))
        assert_heap(filer.heap)
        assert filer.drain()[-1] is timer


@pytest.mark.parametrize("size", [size for size in SIZES if size])
def test_the_parent_of_i_lies_at_a_quarter_of_i_minus_one(size: int) -> None:
    """A new minimum climbs from the last place to the root by exactly those parents, and shifts each down by one."""
    filer = HeapFiler(map(float, range(size)))
    before = [*filer.heap._timers, None]
    path = [size]
    while path[-1]:
        path.append((path[-1] - 1) // 4)
    newcomer = filer.add(-1.0)
    expected = [*before]
    for child, parent in itertools.pairwise(path):
        expected[child] = before[parent]
    expected[0] = newcomer
    assert filer.heap._timers == expected
