"""Every timer queue alone, against `sorted()`: it stores, moves, shows, sweeps and gives back by (key, order).

All are asked at the end of time here, when lateness is no excuse; `test_wheels` asks when exactly.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.timers import SCHEMES, Timer, Timers, check_queue
from tests.support.examples import examples
from tests.support.timers import EXACT, INF, QUEUES, WHEELS, Filer, assert_queue, in_order

# few values, so that many are equal; ticks and what lies between; and those that break careless arithmetic
KEYS = st.one_of(
    st.integers(-3, 3).map(float),
    st.integers(-5000, 5000).map(lambda number: number / 2048),
    st.sampled_from([-INF, -1e308, -1e12, -0.0, 5e-324, 1e-9, 1e7, 1e12, 1e308]),
    st.floats(allow_nan=False, allow_infinity=False),
)
on_all_queues = pytest.mark.parametrize("name", QUEUES)


@on_all_queues
def test_an_empty_queue_wakes_never(name: str) -> None:
    queue = SCHEMES[name]()
    for now in (0.0, -INF, INF):
        assert queue.due(now) is None
        assert (len(queue), queue.wake_time(), queue.sweep(), queue.clear()) == (0, INF, 0, [])


@on_all_queues
@settings(max_examples=examples(50))
@given(st.lists(KEYS, max_size=60))
def test_what_is_filed_comes_out_sorted(name: str, keys: list[float]) -> None:
    filer = Filer(SCHEMES[name](), keys)
    assert len(assert_queue(filer.queue)) == len(keys)
    assert filer.queue.wake_time() == min(keys, default=INF)
    assert filer.drain() == in_order(filer.timers)
    assert (len(filer.queue), filer.queue.wake_time()) == (0, INF)


@on_all_queues
@settings(max_examples=examples(50))
@given(st.lists(KEYS, min_size=1, max_size=40), st.lists(st.tuples(st.integers(0, 39), KEYS), max_size=40), KEYS)
def test_a_filed_timer_moves_earlier_wherever_it_lies(
    name: str, keys: list[float], moves: list[tuple[int, float]], now: float
) -> None:
    """Before and after a check has given it another place."""
    filer = Filer(SCHEMES[name](), keys)
    for number, (which, key) in enumerate(moves):
        if number == len(moves) // 2:
            filer.queue.due(now)
        timer = filer.timers[which % len(keys)]
        if key < timer.key:
            filer.move(timer, key)
        assert len(assert_queue(filer.queue)) == len(keys)
        assert filer.queue.first().key <= max(filer.queue.wake_time(), timer.key)
    assert filer.drain() == in_order(filer.timers)


@on_all_queues
@settings(max_examples=examples(50))
@given(st.lists(st.one_of(KEYS, st.just(None)), max_size=80))
def test_filing_and_removing_may_alternate(name: str, steps: list[float | None]) -> None:
    filer = Filer(SCHEMES[name]())
    stored: list[Timer] = []
    for key in steps:
        if key is not None:
            stored.append(filer.add(key))
        elif stored:
            stored = in_order(stored)
            assert filer.queue.due(INF) is stored[0]
            assert filer.queue.remove_first() is stored.pop(0)
        assert len(assert_queue(filer.queue)) == len(stored)
    assert filer.drain() == in_order(stored)


@on_all_queues
@settings(max_examples=examples(50))
@given(st.lists(KEYS, min_size=1, max_size=30), st.lists(KEYS, max_size=30))
def test_the_one_that_is_due_may_be_filed_later(name: str, keys: list[float], later: list[float]) -> None:
    filer = Filer(SCHEMES[name](), keys)
    for key in later:
        timer = filer.queue.due(INF)
        assert timer is not None
        if key >= timer.key:
            filer.move(timer, key)
        assert len(assert_queue(filer.queue)) == len(keys)
    assert filer.drain() == in_order(filer.timers)


@on_all_queues
@settings(max_examples=examples(50))
@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=60), KEYS)
def test_sweep_takes_out_the_zombies_and_nothing_else(name: str, entries: list[tuple[float, bool]], now: float) -> None:
    filer = Filer(SCHEMES[name](), (key for key, _ in entries))
    filer.queue.due(now)
    zombies = [timer for timer, (_, stopped) in zip(filer.timers, entries, strict=True) if stopped]
    live = [timer for timer, (_, stopped) in zip(filer.timers, entries, strict=True) if not stopped]
    for timer in zombies:
        timer.when = INF
    assert filer.queue.sweep() == len(zombies)
    assert all((timer.key, timer.index, timer.slot) == (INF, -1, -1) for timer in zombies)
    assert len(assert_queue(filer.queue)) == len(live)
    assert filer.drain() == in_order(live)


@on_all_queues
@settings(max_examples=examples(50))
@given(st.lists(KEYS, max_size=40), KEYS)
def test_clear_gives_back_everything_once_and_unfiled(name: str, keys: list[float], now: float) -> None:
    filer = Filer(SCHEMES[name](), keys)
    filer.queue.due(now)
    cleared = filer.queue.clear()
    assert sorted(map(id, cleared)) == sorted(map(id, filer.timers))
    assert all((timer.key, timer.index, timer.slot) == (INF, -1, -1) for timer in cleared)
    assert (len(assert_queue(filer.queue)), filer.queue.wake_time()) == (0, INF)
    timer = filer.add(1.0)
    assert filer.drain() == [timer]


@on_all_queues
@settings(max_examples=examples(50))
@given(st.lists(KEYS, max_size=40), KEYS)
def test_a_queue_can_be_emptied_from_its_head_at_any_time(name: str, keys: list[float], now: float) -> None:
    """As `Timers` drops zombies: whatever `first` shows may go, and the wake time never moves back."""
    filer = Filer(SCHEMES[name](), keys)
    filer.queue.due(now)
    wake = -INF
    left = set(filer.timers)
    while len(filer.queue):
        assert wake <= filer.queue.wake_time() < INF
        wake = filer.queue.wake_time()
        first = filer.queue.first()
        assert filer.queue.remove_first() is first
        left.remove(first)
        assert len(assert_queue(filer.queue)) == len(left)
    assert filer.queue.wake_time() == INF


@on_all_queues
@pytest.mark.parametrize("size", [1, 5, 23, 200])
def test_equal_keys_come_out_in_the_order_of_entry(name: str, size: int) -> None:
    filer = Filer(SCHEMES[name](), [7.0] * size)
    assert filer.drain(7.0) == filer.timers


@on_all_queues
def test_thousands_of_timers_in_adverse_orders(name: str) -> None:
    """Rising, falling and random keys: a tree must not become a list, a sift not miss a level."""
    for keys in (range(3000), range(3000, 0, -1), random.Random(1).sample(range(4000), 4000)):
        filer = Filer(SCHEMES[name](), map(float, keys))
        assert_queue(filer.queue)
        drained = []
        while (timer := filer.queue.due(INF)) is not None:
            drained.append(filer.queue.remove_first())
            assert drained[-1] is timer
        assert drained == in_order(filer.timers)


def test_there_are_exact_queues_and_wheels() -> None:
    assert EXACT == ["heap2", "heap4", "sorted", "tree", "unsorted"]
    assert WHEELS == ["hashed", "hierarchical", "kernel", "wheel"]


@on_all_queues
def test_a_queue_says_how_late_it_may_be(name: str) -> None:
    timers = Timers(name)
    assert timers.granularity == (0.0 if name in EXACT else 1 / 1024)
    assert timers.coarseness == (0.125 if name == "kernel" else 0.0)


def test_an_unknown_queue_is_refused_with_the_names_of_those_there_are() -> None:
    for choose in (Timers, check_queue):
        with pytest.raises(ValueError, match="unknown timer queue 'heap3': choose one of hashed, heap2, heap4"):
            choose("heap3")
