"""Many threads start, stop and reset at once: every function is called exactly as often as the answers say."""

from __future__ import annotations

import itertools
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType

import pytest

from deadlined.threads import TimerHandle, TimerThread
from tests.support.threads import HOUR, PATIENCE, done_calling, run_threads, timer_thread, wait

THREADS = 4


@pytest.fixture(params=[None, 1e-6], ids=["usual", "hasty"], autouse=True)
def switching(request: pytest.FixtureRequest) -> Iterator[None]:
    """Once as usual, once with the interpreter changing threads at every opportunity."""
    usual = sys.getswitchinterval()
    if request.param is not None:
        sys.setswitchinterval(request.param)
    yield
    sys.setswitchinterval(usual)


class Counted:
    """A timer and how often it was called; and how often it should be, by what start, stop and reset answered."""

    def __init__(self, timers: TimerThread) -> None:
        self.calls = 0
        self.owed = 1
        self.lock = threading.Lock()
        self.handle = timers.after_func(random.choice([0.0, 1e-5, 1e-4]), self.call)

    def call(self) -> None:
        self.calls += 1

    def stop(self) -> None:
        if self.handle.stop():
            with self.lock:
                self.owed -= 1

    def reset(self, seconds: float) -> None:
        if not self.handle.reset(seconds):
            with self.lock:
                self.owed += 1


@pytest.mark.parametrize("buckets", [1, 8])
def test_exactly_once_with_a_timer_per_thread(buckets: int) -> None:
    with timer_thread(buckets) as timers:

        def work() -> None:
            chance = random.Random(threading.get_ident())
            mine = []
            for _ in range(800):
                counted = Counted(timers)
                if chance.random() < 0.5:
                    threading.Event().wait(chance.choice([1e-6, 1e-4]))
                if chance.random() < 0.7:
                    counted.stop()
                if chance.random() < 0.3:
                    counted.reset(chance.choice([0.0, 1e-4]))
                mine.append(counted)
            # in the same bucket, and due after all of mine
            later = threading.Event()
            timers.after_func(2e-3, later.set)
            assert later.wait(PATIENCE)
            assert [counted.calls for counted in mine] == [counted.owed for counted in mine]

        run_threads(*[work] * THREADS)


@pytest.mark.parametrize("buckets", [1, 8])
def test_exactly_once_when_all_threads_stop_and_reset_the_same_timers(buckets: int) -> None:
    with timer_thread(buckets) as timers:
        shared = [Counted(timers) for _ in range(20)]

        def work() -> None:
            chance = random.Random(threading.get_ident())
            for _ in range(1500):
                counted = chance.choice(shared)
                if chance.random() < 0.5:
                    counted.stop()
                else:
                    counted.reset(chance.choice([0.0, 1e-5, 1e-4, HOUR]))

        run_threads(*[work] * THREADS)
        for counted in shared:
            counted.stop()
        # a claimed call may still be running
        timers.close()
        assert [counted.calls for counted in shared] == [counted.owed for counted in shared]


@pytest.mark.parametrize("attempt", range(5))
def test_closing_in_the_middle_of_it(attempt: int) -> None:
    counted: list[Counted] = []
    many = threading.Event()
    with timer_thread(4) as timers:

        def work() -> None:
            while True:
                try:
                    counted.append(Counted(timers))
                except RuntimeError:
                    return
                if len(counted) > 50:
                    many.set()

        def close() -> None:
            assert many.wait(PATIENCE)
            timers.close()
            assert not any(each.handle.stop() for each in list(counted))

        run_threads(close, *[work] * THREADS)
    assert all(each.calls <= 1 for each in counted)


def test_taking_over_in_the_middle_of_it() -> None:
    """Timers are stopped and reset while their bucket goes from heir to heir."""
    chain = [TimerThread() for _ in range(20)]
    counted = [Counted(chain[0]) for _ in range(50)]
    finished = threading.Event()

    def take() -> None:
        try:
            for old, new in itertools.pairwise(chain):
                new.take(old)
                threading.Event().wait(1e-3)
        finally:
            finished.set()

    def work() -> None:
        chance = random.Random(threading.get_ident())
        while not finished.is_set():
            each = chance.choice(counted)
            if chance.random() < 0.5:
                each.stop()
            else:
                each.reset(chance.choice([0.0, 1e-4, HOUR]))

    run_threads(take, *[work] * 3)
    for each in counted:
        each.stop()
    for timers in chain:
        timers.close()
    assert [each.calls for each in counted] == [each.owed for each in counted]


def test_periodic_timers_under_fire() -> None:
    with timer_thread(4) as timers:
        after_stop: list[str] = []

        def work() -> None:
            for _ in range(100):
                stopped = threading.Event()

                def tick(stopped: threading.Event = stopped) -> None:
                    if stopped.is_set():
                        after_stop.append("called after stop")

                ticker: TimerHandle = timers.every(1e-5, tick)
                threading.Event().wait(1e-5)
                assert ticker.reset(2e-5) is True
                assert ticker.stop() is True
                # the one call that was claimed before the stop may run until then
                done_calling(timers)
                stopped.set()

        run_threads(*[work] * THREADS)
        assert after_stop == []


class Interrupted(BaseException):
    pass


def test_a_signal_handler_that_raises_in_a_stop_leaves_the_thread_at_work() -> None:
    """As Ctrl-C does. A lock that stays held would stop all timers, and the exit of the program."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with timer_thread() as timers:
            for _ in range(300):
                with suppress(Interrupted):
                    handle = timers.after_func(HOUR, int)
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 1e-4))
                    while True:
                        handle.stop()
                        handle.reset(HOUR)
                lock = timers._buckets[0].lock
                is_free = lock.acquire(timeout=PATIENCE)
                # also if it is not: the thread must end
                lock.release()
                assert is_free
            called = threading.Event()
            timers.after_func(0, called.set)
            wait(called)
    finally:
        signal.signal(signal.SIGALRM, before)
