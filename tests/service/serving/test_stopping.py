"""Which signal begins a drain, and how long it keeps idle connections."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from deadlined.http import REUSE_GRACE
from deadlined.service.process.hangup import Hangup
from deadlined.service.process.last_resort import MARGIN
from deadlined.service.process.signals import SAME_STOP
from deadlined.service.serving.stopping import EXIT_GRACE, REPLACED_GRACE, Stopper, reuse_grace


@pytest.fixture
def handlers() -> Iterator[None]:
    """The handlers of before are restored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def hangup(handlers: None) -> Hangup:
    """A handler of SIGHUP in a process that has a supervisor."""
    return Hangup(supervised=True)


@pytest.fixture
def without_terminal(handlers: None, monkeypatch: pytest.MonkeyPatch) -> Hangup:
    """A handler of SIGHUP in a process that has lost its terminal."""
    monkeypatch.setattr("deadlined.terminal.Start.has_lost_terminal", lambda _: True)
    return Hangup()


@pytest.mark.parametrize(
    ("signals", "first"),
    [
        ([signal.SIGHUP, signal.SIGTERM], "SIGHUP"),
        # a handler is interrupted by the next signal before its first step
        ([signal.SIGTERM, signal.SIGHUP], "SIGHUP"),
        ([signal.SIGTERM, signal.SIGTERM], "SIGTERM"),
        ([signal.SIGINT, signal.SIGTERM], "SIGINT"),
    ],
)
async def test_one_that_is_replaced_knows_it_in_whichever_order_its_handlers_run(
    signals: list[signal.Signals], first: str, hangup: Hangup
) -> None:
    begun: list[str] = []
    with Stopper(lambda: math.inf, begun.append, None, hangup, bool):
        for number in signals:
            signal.raise_signal(number)
        await wait_all_tasks_blocked(0.01)
    assert begun == [first]


async def test_who_asks_the_handler_of_sigterm_learns_of_the_drain_as_with_uvicorn(hangup: Hangup) -> None:
    with Stopper(lambda: math.inf, bool, None, hangup, bool):
        handling: Any = signal.getsignal(signal.SIGTERM)
        asked = handling.__self__
        assert not asked.should_exit
        signal.raise_signal(signal.SIGINT)
        assert asked.should_exit


class Clock:
    """Seconds that pass between two signals: not of the same stop, unless `step` is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step = SAME_STOP

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """In how many seconds the process would have been ended; it is not."""
    found: list[float] = []

    class Recorder:
        def __init__(self, seconds: float, *_: object) -> None:
            found.append(seconds)

        def start(self) -> None:
            """Never end the process."""

    monkeypatch.setattr("threading.Timer", Recorder)
    return found


@pytest.mark.parametrize(
    ("drain", "expected"),
    [(5.0, [5.0 + MARGIN, MARGIN]), (1e300, [threading.TIMEOUT_MAX, MARGIN]), (math.inf, [MARGIN])],
)
async def test_a_second_one_is_the_drains_deadline_and_a_third_one_gives_no_time_back(
    drain: float, expected: list[float], hangup: Hangup, limits: list[float], clock: Clock
) -> None:
    ended: list[str] = []
    with Stopper(lambda: drain, bool, lambda: ended.append("ended"), hangup, bool, clock):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        await wait_all_tasks_blocked(0.01)
    assert limits == expected
    assert ended == ["ended"] * 2


async def test_a_second_one_at_once_is_the_same_and_a_later_one_is_not(
    hangup: Hangup, limits: list[float], clock: Clock
) -> None:
    told: list[str] = []
    clock.step = SAME_STOP / 4
    with Stopper(lambda: 5.0, told.append, lambda: told.append("cut"), hangup, bool, clock):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        await wait_all_tasks_blocked(0.01)
        assert (told, limits) == (["SIGINT"], [5.0 + MARGIN])
        signal.raise_signal(signal.SIGTERM)
        await wait_all_tasks_blocked(0.01)
    assert (told, limits) == (["SIGINT", "cut"], [5.0 + MARGIN, MARGIN])


async def test_a_drain_that_was_asked_for_is_cut_by_the_second_one_only(
    hangup: Hangup, limits: list[float], clock: Clock
) -> None:
    """An orchestrator has a hook that asks for it, and sends its signal then."""
    told: list[str] = []
    with Stopper(lambda: 5.0, told.append, lambda: told.append("cut"), hangup, bool, clock) as stopper:
        for _ in range(2):
            stopper.request("POST /drain")
        assert stopper.should_exit
        signal.raise_signal(signal.SIGTERM)
        await wait_all_tasks_blocked(0.01)
        assert (told, limits) == (["POST /drain"], [5.0 + MARGIN])
        signal.raise_signal(signal.SIGTERM)
        stopper.request("POST /drain")
        await wait_all_tasks_blocked(0.01)
    assert (told, limits) == (["POST /drain", "cut"], [5.0 + MARGIN, MARGIN])


@pytest.mark.parametrize(
    ("signals", "told"),
    [
        # a shell sends one more
        ([signal.SIGHUP, signal.SIGHUP], ["SIGTERM"]),
        ([signal.SIGINT, signal.SIGHUP, signal.SIGHUP], ["SIGINT"]),
        ([signal.SIGHUP, signal.SIGTERM], ["SIGTERM"]),
        ([signal.SIGHUP, signal.SIGTERM, signal.SIGTERM], ["SIGTERM", "cut"]),
    ],
    ids=str,
)
async def test_a_terminal_that_is_closed_begins_the_drain_and_cuts_none(
    signals: list[signal.Signals], told: list[str], without_terminal: Hangup, limits: list[float], clock: Clock
) -> None:
    found: list[str] = []
    with Stopper(lambda: 5.0, found.append, lambda: found.append("cut"), without_terminal, pytest.fail, clock):
        for number in signals:
            signal.raise_signal(number)
        await wait_all_tasks_blocked(0.01)
    assert found == told


def test_a_terminal_that_is_closed_while_the_process_starts_ends_it_once(without_terminal: Hangup) -> None:
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    for _ in range(2):
        signal.raise_signal(signal.SIGHUP)
    assert ended == [signal.SIGTERM]


async def test_one_that_was_asked_for_keeps_the_handlers(hangup: Hangup, limits: list[float], clock: Clock) -> None:
    with Stopper(lambda: math.inf, bool, bool, hangup, bool, clock) as stopper:
        stopper.request("POST /drain")
    for _ in range(2):
        signal.raise_signal(signal.SIGTERM)
    assert limits == [MARGIN]


async def test_one_that_comes_after_the_drain_only_limits_what_is_left(
    hangup: Hangup, limits: list[float], clock: Clock
) -> None:
    with Stopper(lambda: math.inf, bool, pytest.fail, hangup, bool, clock):
        signal.raise_signal(signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.raise_signal(number)
    await wait_all_tasks_blocked(0.01)
    assert limits == [MARGIN]


async def test_a_run_that_ends_without_one_gives_the_handlers_back(hangup: Hangup) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Stopper(lambda: math.inf, bool, bool, hangup, bool):
        pass
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.parametrize(
    ("name", "reloads", "grace"),
    [
        ("SIGTERM", False, REUSE_GRACE),
        ("SIGINT", False, REUSE_GRACE),
        ("SIGHUP", False, REPLACED_GRACE),
        ("SIGTERM", True, 0.0),
        ("SIGHUP", True, 0.0),
    ],
)
def test_one_that_is_replaced_has_time_and_one_that_a_person_waits_for_has_none(
    name: str, reloads: bool, grace: float
) -> None:
    assert reuse_grace(name, reloads=reloads) == grace
    assert 0.0 < REUSE_GRACE < REPLACED_GRACE


@pytest.mark.parametrize("code", [0, 4])
async def test_a_process_that_has_served_has_some_seconds_and_keeps_its_exit_code(
    code: int, hangup: Hangup, limits: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exits: list[int] = []
    monkeypatch.setattr("deadlined.service.serving.stopping.exit_now", exits.append)
    with Stopper(lambda: 30.0, bool, bool, hangup, bool) as stopper:
        stopper.request("SIGTERM")
    stopper.served(code)
    assert limits == [30.0 + MARGIN, EXIT_GRACE]
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="left over", daemon=False)
    thread.start()
    stopper._end_process("5 s")
    release.set()
    thread.join()
    assert exits == [code]
    assert "left over" in capsys.readouterr().err
