"""The sleep of a bucket's thread."""

from __future__ import annotations

import math
import threading

import pytest

from deadlined.threads.sleep import ThreadSleep


class Interrupted(BaseException):
    pass


class InterruptedSleep(ThreadSleep):
    """A sleep in which a signal handler raises as a wake-up begins."""

    def wake(self) -> None:
        raise Interrupted


def test_a_signal_handler_that_raises_in_a_wake_up_leaves_it_to_the_next_timer() -> None:
    sleep = InterruptedSleep(threading.Lock())
    sleep.until = math.inf
    for _ in range(2):
        with pytest.raises(Interrupted):
            sleep.wake_by(1.0)


def test_a_thread_that_was_woken_counts_as_awake() -> None:
    sleep = ThreadSleep(threading.Lock())
    sleep.until = math.inf
    sleep.wake_by(1.0)
    assert sleep.until == -math.inf
    # at once
    sleep.sleep(math.inf)
    assert sleep.wakeups == 1
