"""The thread of a TimerThread: started on first use, asleep until the earliest time, robust against what it calls."""

from __future__ import annotations

import math
import threading
import time
import weakref
from contextlib import suppress
from functools import partial

import pytest

from deadlined.threads import State, TimerHandle, TimerThread
from deadlined.timers import SCHEMES
from tests.support.threads import HOUR, PATIENCE, blocked, done_calling, new_threads, run_threads, timer_thread, wait

INF = math.inf


def settled(timers: TimerThread, state: State) -> None:
    """Wait until the one thread has come to this state."""
    pause = threading.Event()
    for _ in range(int(PATIENCE * 1000)):
        if timers.statistics().buckets[0].state == state:
            return
        pause.wait(0.001)
    pytest.fail(f"the thread does not get {state}")


def test_ten_thousand_timers_are_one_more_thread() -> None:
    before = set(threading.enumerate())
    with timer_thread() as timers:
        handles = [timers.after_func(HOUR, print) for _ in range(10_000)]
        assert len(new_threads(before)) == 1
        assert timers.statistics().stored == 10_000
        assert all(handle.stop() for handle in handles)
    assert new_threads(before) == []


def test_ten_thousand_timers_that_fire_are_called_by_one_thread_in_order() -> None:
    calls: list[tuple[int, int]] = []

    def call(number: int) -> None:
        calls.append((number, threading.get_ident()))

    with timer_thread() as timers:
        with blocked(timers):
            for number in range(10_000):
                timers.after_func(0.0, call, number)
        done_calling(timers)
        assert [number for number, _ in calls] == list(range(10_000))
        assert len({ident for _, ident in calls}) == 1


def test_no_thread_before_the_first_use() -> None:
    before = set(threading.enumerate())
    with timer_thread(64) as timers:
        assert new_threads(before) == []
        assert {bucket.state for bucket in timers.statistics().buckets} == {State.NOT_STARTED}


def test_arguments_are_passed_on() -> None:
    calls: list[tuple[object, ...]] = []

    def call(*args: object) -> None:
        calls.append(args)

    with timer_thread() as timers:
        timers.after_func(0.0, call, 1, "two", None)
        done_calling(timers)
    assert calls == [(1, "two", None)]


def test_the_states_are_parked_sleeping_running_and_closed() -> None:
    with timer_thread() as timers:
        done_calling(timers)
        settled(timers, State.PARKED)
        handle = timers.after_func(HOUR, print)
        settled(timers, State.SLEEPING)
        with blocked(timers):
            assert timers.statistics().buckets[0].state == "running"
        settled(timers, State.SLEEPING)
        handle.stop()
        done_calling(timers)
        settled(timers, State.PARKED)
    assert timers.statistics().buckets[0].state == State.CLOSED


def test_only_an_earlier_timer_wakes_the_thread() -> None:
    with timer_thread() as timers:
        first = timers.after_func(HOUR, print)
        settled(timers, State.SLEEPING)
        before = timers.statistics().wakeups
        timers.after_func(2 * HOUR, print)
        first.reset(3 * HOUR)
        first.stop()
        timers.after_func(INF, print)
        # time enough for a thread that was woken to say so
        threading.Event().wait(0.01)
        assert timers.statistics().wakeups == before
        done_calling(timers)
        assert timers.statistics().wakeups > before


@pytest.mark.parametrize("queue", SCHEMES)
def test_every_timer_scheme_fires_in_time_and_never_early(queue: str) -> None:
    called_at: list[float] = []
    called = threading.Event()

    def call() -> None:
        called_at.append(time.monotonic())
        called.set()

    with TimerThread(queue=queue) as timers:
        started = time.monotonic()
        timers.after_func(HOUR, print)
        stopped = timers.after_func(0.01, called_at.append, 0.0)
        timers.after_func(0.02, call)
        assert stopped.stop() is True
        wait(called)
        assert len(called_at) == 1
        assert called_at[0] - started >= 0.02


def test_an_unknown_queue_and_no_buckets_are_errors() -> None:
    with pytest.raises(ValueError, match="unknown timer queue 'bogosort'"):
        TimerThread(queue="bogosort")
    with pytest.raises(ValueError, match="buckets must be >= 1"):
        TimerThread(buckets=0)


def test_a_negative_time_is_now_and_counts_as_no_lateness() -> None:
    with timer_thread() as timers:
        timers.after_func(-1e9, int)
        done_calling(timers)
        assert timers.statistics().worst_lateness < 1e9


def test_what_is_no_function_is_told_when_it_is_given() -> None:
    with timer_thread() as timers:
        for start in (timers.after_func, timers.every):
            with pytest.raises(TypeError, match="a timer needs a function to call, not None"):
                start(60, print())  # type: ignore[arg-type]
        assert timers.statistics().stored == 0


def test_an_async_function_is_refused() -> None:
    class Work:
        async def __call__(self) -> None: ...

    work = Work()
    with timer_thread() as timers:
        for start in (timers.after_func, timers.every):
            for function in (work, work.__call__, partial(work.__call__)):
                with pytest.raises(TypeError, match="is async: only an event loop can run it"):
                    start(HOUR, function)
        assert timers.statistics().stored == 0


def test_nan_is_an_error_and_changes_nothing() -> None:
    with timer_thread() as timers:
        with pytest.raises(ValueError, match="NaN"):
            timers.after_func(math.nan, print)
        handle = timers.after_func(HOUR, print)
        with pytest.raises(ValueError, match="NaN"):
            handle.reset(math.nan)
        assert handle.stop() is True


@pytest.mark.parametrize("error", [ZeroDivisionError("boom"), SystemExit(3), KeyboardInterrupt()], ids=type)
def test_a_function_that_raises_is_logged_and_loses_no_other(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def fail() -> None:
        calls.append("fail")
        raise error

    with timer_thread() as timers:
        with blocked(timers):
            timers.after_func(0.0, calls.append, "before")
            timers.after_func(0.0, fail)
            timers.after_func(0.0, calls.append, "after")
        done_calling(timers)
        assert calls == ["before", "fail", "after"]
        assert timers.statistics().failed == 1
    assert [record.name for record in caplog.records] == ["deadlined.threads"]
    assert type(error).__name__ in caplog.text


def test_functions_start_stop_and_reset_others_and_themselves() -> None:
    calls: list[str] = []
    finished = threading.Event()
    with timer_thread() as timers:
        again: list[TimerHandle] = []
        results: list[bool] = []

        def act() -> None:
            calls.append("act")
            if len(calls) < 3:
                results.extend([again[0].stop(), again[0].reset(0.0)])
                return
            results.append(victim.stop())
            results.append(moved.reset(0.0))
            timers.after_func(0.0, finished.set)

        victim = timers.after_func(HOUR, calls.append, "victim")
        moved = timers.after_func(HOUR, calls.append, "moved")
        with blocked(timers):
            again.append(timers.after_func(0.0, act))
        wait(finished)
        assert calls == ["act", "act", "act", "moved"]
        assert results == [False, False, False, False, True, True]


def test_a_periodic_timer_stops_itself() -> None:
    ticks: list[bool] = []
    stopped = threading.Event()
    with timer_thread() as timers:

        def tick() -> None:
            ticks.append(len(ticks) < 2 or handles[0].stop())
            if len(ticks) == 3:
                stopped.set()

        handles: list[TimerHandle] = []
        with blocked(timers):
            handles.append(timers.every(1e-4, tick))
        wait(stopped)
        done_calling(timers)
        assert ticks == [True, True, True]


def test_a_function_that_blocks_delays_its_own_bucket_only() -> None:
    with timer_thread(64) as timers:
        with blocked(timers):
            delayed = threading.Event()
            timers.after_func(0.0, delayed.set)
            own = bucket_in_use(timers)
            # another thread may share the bucket: try until one does not
            for _ in range(200):
                called = threading.Event()
                run_threads(partial(timers.after_func, 0.0, called.set))
                if bucket_in_use(timers) > own:
                    break
            wait(called)
            assert not delayed.is_set()
        wait(delayed)


def bucket_in_use(timers: TimerThread) -> int:
    return sum(bucket.state != State.NOT_STARTED for bucket in timers.statistics().buckets)


def test_the_timers_of_many_threads_spread_over_the_buckets_and_each_in_use_has_a_thread() -> None:
    before = set(threading.enumerate())
    with timer_thread(64) as timers:
        run_threads(*[lambda: timers.after_func(HOUR, print)] * 16)
        used = bucket_in_use(timers)
        assert 8 <= used <= 16
        assert len(new_threads(before)) == used
        assert timers.statistics().stored == 16


# closing


def test_a_closed_timer_thread_drops_what_is_pending_and_starts_nothing() -> None:
    calls: list[str] = []
    timers = TimerThread()
    pending = timers.after_func(HOUR, calls.append, "pending")
    never = timers.after_func(INF, calls.append, "never")
    timers.close()
    timers.close()
    assert not pending.pending
    assert (pending.stop(), never.stop(), calls) == (False, False, [])
    for start in (
        lambda: timers.after_func(0.0, print),
        lambda: timers.every(1.0, print),
        lambda: pending.reset(1.0),
        lambda: timers.take(TimerThread()),
    ):
        with pytest.raises(RuntimeError, match="the TimerThread is closed"):
            start()


def test_closing_what_was_never_used() -> None:
    timers = TimerThread()
    timers.close()
    assert timers.statistics().buckets[0].state == State.CLOSED


def test_close_waits_for_the_function_that_runs_and_calls_no_other() -> None:
    calls: list[str] = []
    entered, leave = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        wait(leave)
        calls.append("slow")

    timers = TimerThread()
    timers.after_func(0.0, slow)
    wait(entered)
    collected = timers.after_func(0.0, calls.append, "next")
    timers.close(wait=False)
    assert calls == []
    threading.Timer(0.01, leave.set).start()
    timers.close()
    assert calls == ["slow"]
    assert collected.stop() is False


@pytest.mark.parametrize("buckets", [1, 64])
def test_a_function_may_close_what_it_runs_in(buckets: int) -> None:
    closed = threading.Event()
    timers = TimerThread(buckets)

    def close() -> None:
        timers.close()
        closed.set()

    timers.after_func(0.0, close)
    wait(closed)
    timers.close()


def test_two_functions_in_two_buckets_that_close_at_once_do_not_wait_for_each_other() -> None:
    with timer_thread(64) as timers:
        closed = threading.Semaphore(0)
        both = threading.Barrier(2)

        def close() -> None:
            both.wait(PATIENCE)
            timers.close()
            closed.release()

        while bucket_in_use(timers) < 2:
            run_threads(lambda: timers.after_func(HOUR, print))
        buckets = [bucket for bucket in timers._buckets if bucket.thread is not None]
        for bucket in buckets[:2]:
            with bucket.lock:
                bucket.start(TimerHandle(bucket, close, ()), 0.0, 0.0)
        assert closed.acquire(timeout=PATIENCE)
        assert closed.acquire(timeout=PATIENCE)


def test_many_threads_may_close_at_once() -> None:
    timers = TimerThread()
    timers.after_func(HOUR, print)
    run_threads(*[timers.close] * 8)


def test_finalisers_of_dropped_arguments_may_use_the_timer_thread() -> None:
    class Owner:
        def __init__(self) -> None:
            self.timer = timers.after_func(HOUR, print)

        def __del__(self) -> None:
            stops.append(self.timer.stop())

    stops: list[bool] = []
    timers = TimerThread()
    timers.after_func(0.0, id, Owner())
    done_calling(timers)
    assert stops == [True]
    timers.after_func(HOUR, id, Owner())
    timers.close()


# taking over


def test_take_moves_what_is_pending_and_closes_the_other() -> None:
    calls: list[str] = []
    called = threading.Event()
    with timer_thread() as heir:
        other = TimerThread(4)
        run_threads(*[lambda: other.after_func(0.02, calls.append, "moved")] * 4)
        stopped = other.after_func(HOUR, calls.append, "stopped")
        fired = other.after_func(-1.0, called.set)
        wait(called)
        heir.take(other)
        assert stopped.stop() is True
        with pytest.raises(RuntimeError, match="closed"):
            other.after_func(0.0, print)
        other.close()
        called.clear()
        heir.after_func(0.03, called.set)
        wait(called)
        assert calls == ["moved"] * 4
        called.clear()
        assert fired.reset(0.0) is False
        wait(called)


def test_a_sleeping_thread_ends_when_its_timers_are_taken() -> None:
    with timer_thread() as heir:
        other = TimerThread()
        other.after_func(HOUR, print)
        settled(other, State.SLEEPING)
        (thread,) = [bucket.thread for bucket in other._buckets]
        assert thread is not None
        heir.take(other)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_sleeping_heir_is_woken_by_an_earlier_timer_that_it_takes() -> None:
    with timer_thread() as heir:
        heir.after_func(HOUR, print)
        settled(heir, State.SLEEPING)
        other = TimerThread()
        called = threading.Event()
        other.after_func(0.05, called.set)
        heir.take(other)
        wait(called)
        assert heir.statistics().fired + other.statistics().fired == 1
        other.close()


def test_a_sleeping_heir_is_woken_by_a_stopped_timer_that_it_takes() -> None:
    with timer_thread() as heir:
        heir.after_func(HOUR, print)
        settled(heir, State.SLEEPING)
        other = TimerThread()
        freed = threading.Event()
        argument = {1}
        weakref.finalize(argument, freed.set)
        handle = other.after_func(2 * HOUR, id, argument)
        (new,), (old,) = heir._buckets, other._buckets
        with new.lock, old.lock:
            assert handle.stop() is True
            new.succeed(old)
        del handle, argument
        wait(freed)
        other.close()


def test_a_function_that_resets_itself_goes_on_after_its_bucket_was_taken() -> None:
    taken, done = threading.Event(), threading.Event()
    with timer_thread() as heir:
        other = TimerThread()

        def again() -> None:
            if taken.is_set():
                done.set()
            else:
                wait(taken)
                handles[0].reset(0.0)

        handles: list[TimerHandle] = []
        with blocked(other):
            handles.append(other.after_func(0.0, again))
        heir.take(other)
        taken.set()
        wait(done)
        other.close()


def test_a_timer_thread_cannot_take_its_own() -> None:
    with timer_thread() as timers, pytest.raises(ValueError, match="its own"):
        timers.take(timers)


def test_taking_each_other_at_once_leaves_one_of_them_open_and_loses_nothing() -> None:
    def take(one: TimerThread, other: TimerThread) -> None:
        with suppress(RuntimeError):
            one.take(other)
            taken.append(other)

    for _ in range(50):
        taken: list[TimerThread] = []
        both = [TimerThread(), TimerThread()]
        handles = [timers.after_func(HOUR, print) for timers in both]
        run_threads(partial(take, *both), partial(take, *reversed(both)))
        assert len(taken) == 1
        assert [handle.stop() for handle in handles] == [True, True]
        for timers in both:
            timers.close()
