"""DEADLINED_PRECISE on every event loop, in real time: a timer of the kernel that fires once, and is set again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest
import trio

from deadlined import current_time, sleep_until
from deadlined.runtime import LOOPS, current_host, run
from deadlined.timers import Timer

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="timerfd is Linux's")

each_loop = pytest.mark.parametrize("loop", LOOPS)

# seconds: the time of a test's timers
SOON = 0.002


@pytest.fixture(autouse=True)
def precise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEADLINED_PRECISE", "1")


class Alarm:
    """A timer that counts how often it has fired."""

    def __init__(self) -> None:
        self.fired = 0
        self._timer = Timer(self._note, None)

    def set(self, when: float) -> None:
        current_host().set_timer(self._timer, when)

    def _note(self, *_: object) -> None:
        self.fired += 1


async def until(loop: str, condition: Callable[[], bool]) -> None:
    """Wait by the event loop's own timers, which do not make the pump poll."""
    for _ in range(2000):
        if condition():
            return
        await (trio.sleep if loop == "trio" else asyncio.sleep)(0.001)
    raise AssertionError("it did not happen")


@each_loop
def test_a_timer_that_another_sets_for_its_own_time_fires(loop: str) -> None:
    async def main() -> None:
        again, later = Alarm(), Alarm()
        when = current_time() + SOON
        first = Timer(lambda *_: again.set(when), None)
        current_host().set_timer(first, when)
        await until(loop, lambda: again.fired == 1)
        later.set(current_time() + SOON)
        await until(loop, lambda: later.fired == 1)
        assert again.fired == 1

    run(loop, main)


@each_loop
def test_a_timer_that_a_woken_task_sets_for_the_time_of_its_wake_fires(loop: str) -> None:
    """Trio runs the task before or after that of the pump, by chance."""

    async def main() -> None:
        for _ in range(20):
            alarm = Alarm()
            when = current_time() + SOON
            await sleep_until(when)
            alarm.set(when)
            await until(loop, lambda alarm=alarm: alarm.fired == 1)  # type: ignore[misc]

    run(loop, main)


@pytest.mark.parametrize("loop", [name for name in LOOPS if name != "trio"])
def test_a_timer_that_an_exit_has_left_behind_fires_if_the_loop_runs_on(loop: str) -> None:
    """Of two that are due at once; on trio an exit ends the run."""
    raised: list[object] = []

    def leave(*_: object) -> None:
        raised.append(None)
        raise SystemExit

    async def set_both(alarm: Alarm) -> None:
        when = current_time() + SOON
        current_host().set_timer(Timer(leave, None), when)
        alarm.set(when)

    alarm = Alarm()
    events = asyncio.new_event_loop() if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop()
    try:
        events.run_until_complete(set_both(alarm))
        with pytest.raises(SystemExit):
            events.run_forever()
        events.run_until_complete(until(loop, lambda: alarm.fired == 1))
        assert (len(raised), alarm.fired) == (1, 1)
    finally:
        events.run_until_complete(events.shutdown_asyncgens())
        events.close()
