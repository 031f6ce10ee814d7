"""Finalisers, which run wherever Python collects garbage: also where the bucket's lock is held."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from deadlined.threads import TimerHandle, TimerThread
from tests.support.threads import HOUR, PATIENCE, Plan, done_calling, python, timer_thread


class Cycle:
    """Garbage that only the collector frees, and that calls a function then."""

    def __init__(self, finalise: Callable[[], object]) -> None:
        self.itself = self
        self.finalise = finalise

    def __del__(self) -> None:
        self.finalise()


def in_time(work: Callable[[], None]) -> None:
    """Run `work` in a thread, so that one that never ends fails the test."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it waits for itself"


def test_a_finaliser_stops_a_timer_while_its_thread_holds_the_lock() -> None:
    plan = Plan()
    handle = plan.armed("a", 1.0)
    plan.armed("b", 1.0)
    stops: list[bool] = []

    def work() -> None:
        Cycle(lambda: stops.append(handle.stop()))
        with plan.bucket.lock:
            gc.collect()

    in_time(work)
    assert stops == [True]
    assert not handle.pending
    assert handle.stop() is False
    assert plan.called_at(2.0) == ["b"]


@pytest.mark.parametrize("period", [0.0, 1.0])
def test_a_stop_between_collecting_and_claiming_wins_without_the_lock(period: float) -> None:
    plan = Plan()
    plan.armed("first", 1.0)
    handle = plan.armed("stopped", 1.0, period)
    plan.call_next(2.0)
    with plan.bucket.lock:
        assert handle.stop() is True
    assert plan.called_at(3.0) == []


def test_one_that_is_armed_again_before_its_entry_was_removed_is_called_once() -> None:
    plan = Plan()
    handle = plan.armed("a", 1.0)
    with plan.bucket.lock:
        assert handle.stop() is True
    assert plan.bucket.arm(handle, 5.0) is False
    assert plan.armed("b", 9.0).stop() is True
    assert plan.called_at(2.0) == []
    assert plan.called_at(6.0) == ["a"]


def test_one_that_was_stopped_and_taken_is_not_called_by_the_heir() -> None:
    plan, heir = Plan(), Plan()
    handle = plan.armed("a", 1.0)
    with plan.bucket.lock:
        assert handle.stop() is True
    heir.bucket.take(plan.bucket)
    assert heir.bucket.claim_due(2.0) is None
    assert handle.stop() is False


class Argument:
    """Something that a timer keeps alive."""


def test_what_a_finaliser_stops_is_freed_soon() -> None:
    with timer_thread() as timers:
        argument = Argument()
        freed = threading.Event()
        weakref.finalize(argument, freed.set)
        handles = [timers.after_func(HOUR, id, argument)]
        bucket = timers._buckets[0]

        def work() -> None:
            Cycle(lambda: handles.pop().stop())
            with bucket.lock:
                gc.collect()

        in_time(work)
        del argument
        assert freed.wait(PATIENCE)
        (statistics,) = timers.statistics().buckets
        assert statistics.stored == statistics.zombies


def test_a_stop_does_not_wait_for_another_thread_that_holds_the_lock() -> None:
    with timer_thread(2) as timers:
        first, second = timers._buckets
        handles = []
        for bucket in (first, second):
            handles.append(TimerHandle(bucket, print, ()))
            with bucket.lock:
                bucket.start(handles[-1], HOUR, 0.0)
        stops: list[bool] = []
        # two threads that each collect garbage with one lock held, and stop a timer of the other one
        with first.lock, second.lock:
            in_time(lambda: stops.extend(handle.stop() for handle in handles))
        assert stops == [True, True]


def test_a_finaliser_closes_a_timer_thread_while_its_thread_holds_the_lock() -> None:
    timers = TimerThread()
    called: list[str] = []
    timers.after_func(HOUR, called.append, "late")
    bucket = timers._buckets[0]
    thread = bucket.thread
    assert thread is not None

    def work() -> None:
        Cycle(lambda: timers.close(wait=False))
        with bucket.lock:
            gc.collect()

    in_time(work)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        timers.after_func(1.0, print)
    assert timers.statistics().stored == 0


def test_collections_anywhere_in_the_module_do_no_harm() -> None:
    # a collection after every allocation, in a process of its own
    completed = python(
        """
import gc, threading
from deadlined.threads import TimerThread

class Cycle:
    def __init__(self, handle):
        self.itself = self
        self.handle = handle

    def __del__(self):
        stops.append(self.handle.stop())

stops = []
calls = []
timers = TimerThread()
gc.freeze()
gc.set_threshold(1)
for number in range(300):
    Cycle(timers.after_func(3600.0, calls.append, number))
    timers.after_func(0.0, Cycle, timers.after_func(3600.0, calls.append, number))
    timers.every(3600.0, print).reset(1800.0)
gc.collect()
called = threading.Event()
timers.after_func(0.0, called.set)
assert called.wait(30)
gc.collect()
assert stops == [True] * 600, (len(stops), stops.count(True))
assert calls == []
timers.close()
print("done")
"""
    )
    assert (completed.stdout, completed.stderr) == ("done\n", "")


def test_a_thread_that_was_woken_for_nothing_sleeps_again() -> None:
    with timer_thread() as timers:
        handle = timers.after_func(HOUR, print)
        bucket = timers._buckets[0]
        for _ in range(10):
            bucket.sleep.wake()
        done_calling(timers)
        assert handle.stop() is True
