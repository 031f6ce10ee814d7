"""Worker processes that hang, as processes: others accept in their place, and they are killed and replaced."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.support.admin import AdminClient, admin_of
from tests.support.command import PATIENCE, Process, Starter, read_all

# connections that may all go to one of two workers, by a hash that is as good as a coin: one time in 2 ** 39
MANY = 40


def two_workers(start: Starter, *arguments: str) -> tuple[Process, list[int]]:
    process = start("apps:hanging", "--workers", "2", *arguments)
    process.wait_for("listening")
    return process, [line["pid"] for line in process.events("listening")]


def hang(process: Process) -> None:
    """Have one of them block its event loop for ever."""
    client = process.begin("/hang")
    process.wait_until_busy()
    client.close()


def answering(process: Process) -> set[int]:
    """Make MANY connections at once, and return who has answered them: each was answered."""
    clients = [process.begin() for _ in range(MANY)]
    found = [read_all(client).rpartition("\r\n\r\n")[2] for client in clients]
    for client in clients:
        client.close()
    return {int(pid) for pid in found}


def until(true: object) -> None:
    end = time.monotonic() + PATIENCE
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("loop", ["trio", "asyncio", "uvloop"])
def test_one_whose_handler_blocks_is_killed_and_replaced(start: Starter, loop: str) -> None:
    process, workers = two_workers(start, "--loop", loop, "--worker-timeout", "2s", "--stall-log", "200ms")
    hang(process)
    told = process.wait_for("worker does not answer: killed")
    assert told["pid"] in workers
    assert told["silent"] >= 2.0
    assert (told["function"], told["file"].rpartition("/")[2]) == ("hanging", "apps.py")
    assert "lock.acquire()" in told["stack"]
    ended = process.wait_for("worker ended")
    assert (ended["pid"], ended["signal"]) == (told["pid"], "SIGKILL")
    assert "hint" not in ended
    third = process.wait_for("listening")["pid"]
    # until it has its sockets the other one accepts what comes to them
    until(lambda: answering(process) == {*workers, third} - {told["pid"]})
    process.signal()
    assert process.end() == (0, "")
    assert len(process.events("worker ended")) == 1


def test_others_accept_for_one_that_does_not_answer(start: Starter) -> None:
    process, workers = two_workers(start, "--worker-timeout", "1h")
    until(lambda: answering(process) == set(workers))
    hang(process)
    # most of a half of these wait in the socket of the one that hangs
    (other,) = answering(process)
    assert other in workers


def test_one_that_was_stopped_accepts_again_when_it_goes_on(start: Starter) -> None:
    process, workers = two_workers(start, "--worker-timeout", "1h")
    os.kill(workers[0], signal.SIGSTOP)
    assert answering(process) == {workers[1]}
    os.kill(workers[0], signal.SIGCONT)
    until(lambda: answering(process) == set(workers))
    process.signal()
    assert process.end() == (0, "")


def test_one_that_is_stopped_for_too_long_is_killed_and_replaced(start: Starter) -> None:
    process, workers = two_workers(start, "--worker-timeout", "1s")
    os.kill(workers[0], signal.SIGSTOP)
    assert process.wait_for("worker does not answer: killed")["pid"] == workers[0]
    third = process.wait_for("listening")["pid"]
    until(lambda: answering(process) == {workers[1], third})


@pytest.mark.parametrize("everything", [False, True], ids=["the supervisor", "all processes"])
def test_a_supervisor_that_was_stopped_kills_nobody(start: Starter, everything: bool) -> None:
    process, workers = two_workers(start, "--worker-timeout", "2s")
    stopped = workers if everything else []
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    # a question at least is not answered before the supervisor is stopped
    time.sleep(0.8)
    process.signal(signal.SIGSTOP)
    time.sleep(3.0)
    process.signal(signal.SIGCONT)
    # it finds the questions as they were
    time.sleep(0.2)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    until(lambda: answering(process) == set(workers))
    process.signal()
    assert process.end() == (0, "")
    assert process.events("worker does not answer: killed") == process.events("worker ended") == []


def test_readiness_fails_when_none_answers_and_not_when_one_does_not(start: Starter) -> None:
    process, workers = two_workers(start, "--worker-timeout", "1h", "--admin", "127.0.0.1:0")
    admin = admin_of(process)
    until(lambda: admin.get("/readyz").status == 200)
    os.kill(workers[0], signal.SIGSTOP)
    # by then the supervisor knows that it does not answer
    assert answering(process) == {workers[1]}
    assert admin.get("/readyz").status == 200
    assert up(admin) == {workers[0]: False, workers[1]: True}
    os.kill(workers[1], signal.SIGSTOP)
    until(lambda: admin.get("/readyz").status == 503)
    answer = admin.get("/readyz")
    assert answer.detail == "no worker process answers: each is blocked or stopped"
    assert (admin.get("/livez").status, admin.metrics()["deadlined_ready"]) == (200, 0)
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    until(lambda: admin.get("/readyz").status == 200)


def up(admin: AdminClient) -> dict[int, bool]:
    """Which of the worker processes answer, by their pids."""
    return {one["pid"]: one["up"] for one in admin.get("/statistics").json["workers"]}


def test_a_single_process_is_not_watched(start: Starter) -> None:
    process = start("apps:hanging", "--worker-timeout", "50ms")
    hang(process)
    time.sleep(1.0)
    os.kill(process.pid, 0)
    assert process.events("worker does not answer: killed") == []
