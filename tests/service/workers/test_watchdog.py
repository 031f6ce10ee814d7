"""The watchdog of a supervisor: whom it asks, whom it kills, and what it says."""

from __future__ import annotations

import math
import os
import signal
from typing import Any, cast

import pytest

from deadlined.service.process.notify import Notifier
from deadlined.service.workers.channel import Channel
from deadlined.service.workers.frames import ASK
from deadlined.service.workers.last_block import LastBlock
from deadlined.service.workers.overseer import Overseer
from deadlined.service.workers.watchdog import SupervisorWatchdog
from deadlined.service.workers.worker_process import WorkerProcess


class Questions:
    """A channel to a process that answers them or not."""

    def __init__(self) -> None:
        self.asked = 0

    def send(self, kind: bytes) -> None:
        assert kind == ASK
        self.asked += 1


class Told(Overseer):
    """What the admin listener is told."""

    def __init__(self) -> None:
        self.silent: list[tuple[int, bool]] = []

    def is_silent(self, pid: int, silent: bool) -> None:
        self.silent.append((pid, silent))


class Service:
    """A supervisor of two worker processes, whose time and kills are the test's."""

    def __init__(self, limit: float = 30.0, watchdog: float = 0.0) -> None:
        self.now = 1000.0
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.told = Told()
        self.workers = {pid: worker(pid) for pid in (11, 12)}
        notifier = Notifier("@nobody-listens-here" if watchdog else "", watchdog)
        self.watchdog = SupervisorWatchdog(notifier, limit, self.told, self._log)

    def _log(self, event: str, **fields: Any) -> None:
        self.said.append((event, fields))

    def asked(self, pid: int) -> int:
        return cast(Questions, self.workers[pid].channel).asked

    def wait(self, seconds: float, answering: tuple[int, ...] = ()) -> list[bool]:
        """Let so many seconds pass in order. Return what each tick has."""
        until, found = self.now + seconds, []
        while self.now < until:
            self.now = max(self.now, self.watchdog.until)
            found.append(self.watchdog.tick(self.workers.values(), self.now))
            for pid in answering:
                self.workers[pid].answered()
        return found


def worker(pid: int) -> WorkerProcess:
    return WorkerProcess(pid, cast(Channel, Questions()), 0.0, pid - 10, 0, LastBlock(), ready=True)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    pids: list[int] = []

    def kill(pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        pids.append(pid)

    monkeypatch.setattr(os, "kill", kill)
    return pids


def test_one_that_does_not_answer_is_killed_once_and_said(killed: list[int]) -> None:
    service = Service()
    service.workers[12].block.note("shop.py", "buy", "a stack")
    service.wait(120.0, answering=(11,))
    assert killed == [12]
    ((event, fields),) = service.said
    assert event == "worker does not answer: killed"
    assert fields == {
        "level": "error",
        "number": 2,
        "pid": 12,
        "silent": 30.0,
        "file": "shop.py",
        "function": "buy",
        "stack": "a stack",
    }


def test_a_block_that_was_over_before_the_last_answer_is_not_said(killed: list[int]) -> None:
    service = Service()
    service.workers[12].block.note("shop.py", "buy", "a stack")
    service.wait(1.0, answering=(11, 12))
    service.wait(60.0, answering=(11,))
    assert killed == [12]
    assert "file" not in service.said[0][1]


def test_it_is_silent_at_once_and_no_longer_when_it_answers(killed: list[int]) -> None:
    service = Service()
    service.wait(5.0, answering=(11, 12))
    assert service.told.silent == []
    assert service.wait(5.0, answering=(11,)).count(True) == 1
    assert service.told.silent == [(12, True)]
    assert service.workers[12].silent
    assert service.wait(5.0, answering=(11, 12)).count(True) == 1
    assert service.told.silent == [(12, True), (12, False)]
    assert killed == []


@pytest.mark.parametrize("state", [{"ready": False}, {"leaving": True}])
def test_one_that_starts_or_drains_is_neither_asked_nor_killed(state: dict[str, bool], killed: list[int]) -> None:
    service = Service()
    for name, value in state.items():
        setattr(service.workers[12], name, value)
    service.wait(1000.0, answering=(11,))
    assert (service.asked(12), killed, service.told.silent) == (0, [], [])


def test_a_supervisor_that_was_stopped_kills_nobody(killed: list[int]) -> None:
    service = Service()
    for _ in range(100):
        service.wait(2.0, answering=(11, 12))
        service.wait(1.0)
        service.now += 3600.0
        # the answers of that time are received after this
        service.watchdog.tick(service.workers.values(), service.now)
        for one in service.workers.values():
            one.answered()
    assert (killed, service.told.silent) == ([], [])


def test_without_a_limit_nobody_is_asked() -> None:
    service = Service(math.inf)
    assert service.watchdog.until == math.inf
    assert not service.watchdog.tick(service.workers.values(), service.now)
    assert service.asked(11) == 0


@pytest.mark.parametrize(
    ("limit", "watchdog", "seconds"), [(30.0, 10.0, 10.0), (30.0, 60.0, 30.0), (math.inf, 10.0, 10.0)]
)
def test_the_limit_is_the_service_managers_if_that_is_shorter(
    limit: float, watchdog: float, seconds: float, killed: list[int]
) -> None:
    service = Service(limit, watchdog)
    service.wait(seconds - 1.0)
    assert killed == []
    service.wait(2.0)
    assert killed == [11, 12]
    assert [fields["silent"] for _, fields in service.said] == [seconds, seconds]
