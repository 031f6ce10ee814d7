"""Go's tests of AfterFunc, Stop, Reset and tickers (time/sleep_test.go, time/tick_test.go), restated for timer threads.

The names are Go's. Where Go asserts wall time in both directions these assert "never early", or run in virtual time.
One difference is by design: Go's AfterFunc starts a goroutine, here the function runs in the timers' own thread.
"""

from __future__ import annotations

import gc
import math
import random
import threading
import time
import weakref

import pytest

from deadlined.threads import TimerHandle
from tests.support.threads import HOUR, PATIENCE, Plan, done_calling, run_threads, timer_thread, wait

INF = math.inf


def test_after_never_early() -> None:
    with timer_thread() as timers:
        for delay in (0.0, 0.001, 0.0123, 0.05):
            called_at: list[float] = []
            called = threading.Event()

            def note(called_at: list[float] = called_at, called: threading.Event = called) -> None:
                called_at.append(time.monotonic())
                called.set()

            started = time.monotonic()
            timers.after_func(delay, note)
            wait(called)
            assert called_at[0] - started >= delay


def test_after_func() -> None:
    """A chain of ten, each of which has something to block on: the blocking goes to a thread, the chain goes on."""
    done, leave = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []
    with timer_thread() as timers:

        def link(left: int) -> None:
            threads.append(threading.Thread(target=wait, args=(leave,)))
            threads[-1].start()
            if left:
                timers.after_func(0.0, link, left - 1)
            else:
                done.set()

        timers.after_func(0.0, link, 10)
        wait(done)
        leave.set()
        for thread in threads:
            thread.join()


def test_after_func_starvation() -> None:
    """Two busy threads that hand each other the turn do not keep a timer from firing."""
    stopped = threading.Event()
    turns = [threading.Semaphore(1), threading.Semaphore(0)]

    def ping_pong(mine: int) -> None:
        while turns[mine].acquire(timeout=PATIENCE) and not stopped.is_set():
            turns[1 - mine].release()
        turns[1 - mine].release()

    with timer_thread() as timers:
        timers.after_func(1e-6, stopped.set)
        run_threads(lambda: ping_pong(0), lambda: ping_pong(1))
        assert stopped.is_set()


def test_after_stop() -> None:
    plan = Plan()
    plan.armed("dummy", 0.100)
    first, second = plan.armed("first", 0.050), plan.armed("second", 0.150)
    plan.armed("last", 0.200)
    assert first.stop() is True
    assert second.stop() is True
    assert plan.called_at(0.2) == ["dummy", "last"]
    assert first.stop() is False
    assert second.stop() is False


def test_after_queuing() -> None:
    plan = Plan()
    slots = [5, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0]
    for slot in slots:
        plan.armed(str(slot), slot)
    called = [name for now in range(10) for name in plan.called_at(now)]
    assert called == [str(slot) for slot in sorted(slots)]


def test_timer_stop_stress() -> None:
    plan = Plan()
    handles = [plan.armed(str(number), 2.0 + number * 1e-3) for number in range(100)]
    assert plan.called_at(1.0) == []
    assert [handle.stop() for handle in handles] == [True] * 100
    assert plan.called_at(3.0) == []


def test_reset() -> None:
    plan = Plan()
    handle = plan.armed("a", 2.0)
    assert plan.called_at(1.0) == []
    assert plan.bucket.arm(handle, 1.0 + 3.0) is True
    assert plan.called_at(3.0) == []
    assert plan.called_at(4.0) == ["a"]
    assert plan.bucket.arm(handle, 4.0 + 50.0) is False


def test_reset_through_the_handle() -> None:
    called = threading.Event()
    with timer_thread() as timers:
        handle = timers.after_func(HOUR, called.set)
        assert handle.reset(0.0) is True
        wait(called)
        assert handle.reset(HOUR) is False
        assert handle.reset(HOUR) is True
        assert handle.stop() is True


@pytest.mark.parametrize("huge", [1e308, INF, float(2**63)])
def test_overflow_sleep(huge: float) -> None:
    with timer_thread() as timers:
        called: list[str] = []
        never = timers.after_func(huge, called.append, "huge")
        timers.after_func(-huge, called.append, "negative")
        done_calling(timers)
        assert called == ["negative"]
        assert never.stop() is True


def test_overflow_period_runtime_timer() -> None:
    plan = Plan()
    plan.armed("huge", 0.0, 1e308)
    plan.armed("a", 0.025)
    assert plan.called_at(0.025) == ["huge", "a"]
    assert plan.called_at(1e300) == []


@pytest.mark.parametrize("reuse", [False, True], ids=["func", "reused"])
def test_zero_timer(reuse: bool) -> None:
    """golang/go#44868"""
    called = threading.Semaphore(0)
    with timer_thread() as timers:
        handle: TimerHandle | None = None
        for _ in range(2000):
            if handle is None or not reuse:
                handle = timers.after_func(0.0, called.release)
            else:
                assert handle.reset(0.0) is False
            assert called.acquire(timeout=PATIENCE)
        assert timers.statistics().fired == 2000


def test_timer_modified_earlier() -> None:
    """golang/go#47329"""
    with timer_thread() as timers:
        for _ in range(200):
            called = threading.Event()
            handle = timers.after_func(HOUR, called.set)
            for _ in range(10):
                handle.stop()
                handle.reset(-1e12)
            wait(called)
            handle.stop()


def test_adjust_timers() -> None:
    """golang/go#47762: timers moved near and far in random order tell the truth and fire when they are wanted."""
    chance = random.Random(47762)
    with timer_thread() as timers:
        for _ in range(20):
            called = [threading.Semaphore(0) for _ in range(100)]
            handles = [timers.after_func(0.0, each.release) for each in called]
            todo = list(range(100)) * 6
            chance.shuffle(todo)
            steps = [0] * 100
            for number in todo:
                handle, step = handles[number], steps[number]
                steps[number] += 1
                if step == 0:
                    assert called[number].acquire(timeout=PATIENCE)
                    assert handle.reset(60.0) is False
                elif step in (1, 3):
                    assert handle.stop() is True
                elif step in (2, 4):
                    assert handle.reset(180.0 if step == 2 else 120.0) is False
                else:
                    assert handle.reset(0.0) is True
            assert all(each.acquire(timeout=PATIENCE) for each in called)
            assert not any(handle.stop() for handle in handles)


@pytest.mark.parametrize("operation", ["stop", "reset"])
def test_stop_result_and_reset_result(operation: str) -> None:
    """golang/go#69312: False means that the function was called or is about to be; True that it was not."""
    with timer_thread() as timers:

        def work() -> None:
            chance = random.Random(69312)
            for _ in range(150):
                called = threading.Event()
                handle = timers.after_func(chance.choice([0.0, 1e-5, 1e-4, 1e-3]), called.set)
                timers.after_func(1e-4, wait_briefly)
                if chance.random() < 0.5:
                    wait_briefly()
                pending = handle.stop() if operation == "stop" else handle.reset(INF)
                if pending:
                    done_calling(timers)
                    assert not called.is_set()
                else:
                    wait(called)

        def wait_briefly() -> None:
            threading.Event().wait(5e-5)

        run_threads(*[work] * 4)


def test_ticker() -> None:
    ticks = threading.Semaphore(0)
    with timer_thread() as timers:
        started = time.monotonic()
        ticker = timers.every(0.002, ticks.release)
        assert all(ticks.acquire(timeout=PATIENCE) for _ in range(5))
        assert time.monotonic() - started >= 5 * 0.002 - 1e-6
        started = time.monotonic()
        assert ticker.reset(0.004) is True
        # one more may have come before the reset
        while ticks.acquire(blocking=False):
            pass
        assert all(ticks.acquire(timeout=PATIENCE) for _ in range(5))
        assert time.monotonic() - started >= 4 * 0.004 - 1e-6
        assert ticker.stop() is True
        done_calling(timers)
        ticks_then = timers.statistics().fired
        assert ticker.stop() is False
        done_calling(timers)
        assert timers.statistics().fired == ticks_then + 1


@pytest.mark.parametrize("period", [0.0, -1.0, math.nan, -INF])
def test_new_ticker_lt_zero_duration(period: float) -> None:
    with timer_thread() as timers:
        with pytest.raises(ValueError, match="period must be > 0"):
            timers.every(period, print)
        ticker = timers.every(HOUR, print)
        with pytest.raises(ValueError, match="period must be > 0"):
            ticker.reset(period)
        assert ticker.stop() is True


def test_ticker_stress() -> None:
    ticks = threading.Semaphore(0)
    with timer_thread() as timers:
        ticker = timers.every(1e-9, ticks.release)
        for _ in range(100):
            assert ticks.acquire(timeout=PATIENCE)
            [bytearray(100) for _ in range(100)]
        assert ticker.stop() is True


def test_long_adjust_timers() -> None:
    """Far timers that are started and stopped all the time leave nothing behind but a few zombies."""
    with timer_thread() as timers:
        for _ in range(5000):
            timers.after_func(1e-5, int)
            assert timers.after_func(5.0, print).stop() is True
        done_calling(timers)
        assert timers.statistics().stored < 100


def test_timer_gc() -> None:
    """A timer that was stopped or has fired is freed with its last reference, though the collector never runs."""

    class Argument:
        pass

    gc.disable()
    try:
        with timer_thread() as timers:
            fired, stopped = Argument(), Argument()
            held = [weakref.ref(fired), weakref.ref(stopped)]
            timers.after_func(0.0, id, fired)
            timers.after_func(HOUR, id, stopped).stop()
            done_calling(timers)
            del fired, stopped
            assert [each() for each in held] == [None, None]
    finally:
        gc.enable()


def test_issue5745(caplog: pytest.LogCaptureFixture) -> None:
    """A function that fails while timers are started and stopped leaves no lock held."""
    with timer_thread() as timers:

        def fail() -> None:
            timers.after_func(HOUR, print).stop()
            raise ZeroDivisionError

        timers.after_func(0.0, fail)
        done_calling(timers)
        assert timers.after_func(HOUR, print).stop() is True
    assert "ZeroDivisionError" in caplog.text
