"""What the tests of `deadlined.timing` share: a look at the run's heap, and at the pump between two steps of a task."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from deadlined.runtime import current_pump


def stored_entries() -> int:
    """How many entries lie in this run's heap, stopped ones included."""
    return len(current_pump()._poller.timers)


def pending_entries() -> int:
    """How many entries of this run's heap are wanted."""
    timers = current_pump()._poller.timers
    return len(timers) - timers.zombies


def poll_now() -> None:
    """What the pump does when it wakes, without letting any other task run."""
    pump = current_pump()
    pump._poller.poll(0.0)
    pump._kick(pump._poller.wake_deadline())


def jump_and_poll(clock: MockClock, seconds: float) -> None:
    """Time passes, and the pump has seen it, but no task has run since."""
    clock.jump(seconds)
    poll_now()


async def settle() -> None:
    """Let everything run that can, the pump included."""
    await trio.testing.wait_all_tasks_blocked()
