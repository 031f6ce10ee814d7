"""The entries of the run's timer heap, and the pump between two steps of a task."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from deadlined.runtime import current_host


def stored_entries() -> int:
    """Return the number of entries in this run's heap, stopped ones included."""
    return len(current_host().poller.timers)


def pending_entries() -> int:
    """Return the number of entries in this run's heap that are not stopped."""
    timers = current_host().poller.timers
    return len(timers) - timers.zombies


def poll_now() -> None:
    """Do what the pump does when it wakes, without letting another task run."""
    pump = current_host()
    pump.poller.poll(0.0)
    pump.poller.kick(pump.poller.wake_deadline())


def jump_and_poll(clock: MockClock, seconds: float) -> None:
    """Advance the clock and poll, without letting a task run."""
    clock.jump(seconds)
    poll_now()


async def run_until_blocked() -> None:
    """Let everything run that can, including the pump."""
    await trio.testing.wait_all_tasks_blocked()
