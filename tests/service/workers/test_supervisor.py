"""Several processes behind one port: each serves, a dead one is replaced, and a drain ends them all."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from deadlined.service import StartupError
from deadlined.service.config import MOST_WORKERS, ServeConfig
from deadlined.service.config.rereading import Configuration
from deadlined.service.process.notify import Notifier
from deadlined.service.process.signals import OUT_OF_MEMORY, STOPS
from deadlined.service.workers.channel import Channel
from deadlined.service.workers.last_block import LastBlock
from deadlined.service.workers.overseer import Controls, Overseer
from deadlined.service.workers.rolling import Stage
from deadlined.service.workers.slots import Slots
from deadlined.service.workers.supervisor import Supervisor
from deadlined.service.workers.worker_process import WorkerProcess
from tests.support.command import (
    APPS,
    Process,
    Starter,
    assert_error,
    assert_one_line,
    read_all,
    run,
)

# connections that may all go to one of two workers, by a hash that is as good as a coin: one time in 2 ** 99
MANY = 100

# the import of the second process and of later ones waits until three have begun it
MEETING = """
import os, pathlib, time
from apps import pid as app

place = pathlib.Path(__file__).parent
if (place / "first").exists():
    (place / f"other.{os.getpid()}").touch()
    while len([*place.glob("other.*")]) < 3:
        time.sleep(0.01)
(place / "first").touch()
"""


def pids(process: Process) -> set[int]:
    """Of the workers that have said where they listen, until now."""
    return {line["pid"] for line in process.events("listening")}


def two_workers(start: Starter, *arguments: str) -> tuple[Process, int, int]:
    process = start(*arguments, "--workers", "2")
    process.wait_for("listening")
    first, second = pids(process)
    return process, first, second


def answering(process: Process) -> set[int]:
    """The workers that answer new connections."""
    return {int(process.get().rpartition("\r\n\r\n")[2]) for _ in range(MANY)}


def begun(process: Process) -> socket.socket:
    client = process.begin()
    process.wait_until_busy()
    return client


def test_those_after_the_first_start_all_at_once(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(MEETING)
    process = start("slow:app", "--workers", "4")
    for _ in range(3):
        process.wait_for("listening")
    process.signal()
    assert process.end() == (0, "")


def test_workers_share_a_port_and_the_connections(start: Starter) -> None:
    process, first, second = two_workers(start, "apps:pid")
    assert len({line["url"] for line in process.events("listening")}) == 1
    assert process.pid not in (first, second)
    assert answering(process) == {first, second}
    process.signal()
    assert process.end() == (0, "")
    (stopping,) = process.events("stopping the workers")
    assert (stopping["signal"], stopping["workers"]) == ("SIGTERM", 2)
    assert sum(line["requests"] for line in process.events("stopped")) == MANY


@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, {"signal": "SIGKILL", "hint": OUT_OF_MEMORY}),
        (signal.SIGTERM, {"code": 0}),
        (signal.SIGHUP, {"code": 0}),
    ],
    ids=["killed", "terminated", "hung up"],
)
def test_a_worker_that_has_ended_is_replaced(start: Starter, number: signal.Signals, how: dict[str, object]) -> None:
    process, first, second = two_workers(start, "apps:pid")
    os.kill(first, number)
    # one that drains is replaced before it has ended
    process.wait_for_all("worker ended", "listening")
    (ended,) = process.events("worker ended")
    assert ended["pid"] == first
    assert how.items() <= ended.items()
    assert ("replaced_in" in ended) == (number == signal.SIGKILL)
    (third,) = pids(process) - {first, second}
    assert answering(process) == {second, third}
    process.signal()
    assert process.end() == (0, "")


def test_one_that_does_not_live_long_is_replaced_later_and_later(start: Starter) -> None:
    process, first, _ = two_workers(start, "apps:pid")
    victim = first
    for delay in (0.1, 0.2, 0.4):
        before = pids(process)
        os.kill(victim, signal.SIGKILL)
        assert process.wait_for("worker ended")["replaced_in"] == delay
        process.wait_for("listening")
        (victim,) = pids(process) - before


def test_several_that_end_together_double_the_delay_once(start: Starter) -> None:
    process = start("apps:pid", "--workers", "8")
    for _ in range(7):
        process.wait_for("listening")
    for pid in pids(process):
        os.kill(pid, signal.SIGKILL)
    assert {process.wait_for("worker ended")["replaced_in"] for _ in range(8)} <= {0.1, 0.2}
    for _ in range(8):
        process.wait_for("listening")
    assert len(answering(process)) > 1
    process.signal()
    assert process.end() == (0, "")


def test_a_worker_that_is_hung_up_lets_its_requests_finish(start: Starter) -> None:
    process, *workers = two_workers(start, "apps:slow", "--drain", "1h")
    with begun(process) as client:
        for pid in workers:
            os.kill(pid, signal.SIGHUP)
        for _ in workers:
            assert process.wait_for("draining")["signal"] == "SIGHUP"
        assert read_all(client).endswith("finished")
    process.wait_for_all("worker ended", "worker ended", "listening", "listening")
    assert [line["code"] for line in process.events("worker ended")] == [0, 0]
    process.signal()
    assert process.end() == (0, "")


def test_a_worker_that_was_started_with_hangups_ignored_goes_on(start: Starter) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process, *workers = two_workers(start, "apps:pid")
    finally:
        signal.signal(signal.SIGHUP, before)
    for pid in workers:
        os.kill(pid, signal.SIGHUP)
    assert answering(process) == set(workers)
    process.signal()
    assert process.end() == (0, "")
    assert process.events("worker ended") == []


# what keeps a worker from starting is said once


def test_an_application_that_does_not_start_ends_all(tmp_path: Path) -> None:
    (tmp_path / "apps.py").write_text(APPS)
    completed = run("serve", "apps:broken", "--workers", "3", "--port", "0", cwd=tmp_path)
    assert_error(completed, 1, "the application failed to start", "no database")


def test_an_application_that_is_not_there_ends_all() -> None:
    assert_one_line(run("serve", "no_such_module:app", "--workers", "3", "--port", "0"), 2, "no module")


def test_one_that_is_killed_at_its_start_is_said(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    completed = run("serve", "bad:app", "--workers", "3", "--port", "0", cwd=tmp_path)
    assert completed.returncode == 1
    (line,) = [json.loads(text) for text in completed.stdout.splitlines()]
    assert line["event"] == "the first worker was killed before it served"
    assert (line["level"], line["number"], line["signal"]) == ("error", 1, "SIGKILL")
    assert line["hint"] == OUT_OF_MEMORY


def test_a_port_in_use_is_not_shared_with_a_stranger() -> None:
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = str(stranger.getsockname()[1])
        assert_one_line(run("serve", "--workers", "2", "--port", port), 3, port, "another process has it")


def test_the_environment_can_tell_the_number(start: Starter) -> None:
    process = start("apps:pid", DEADLINED_WORKERS="2")
    process.wait_for("listening")
    assert len(pids(process)) == 2


def configuration() -> Configuration:
    # nothing but what a test does wakes the supervisor
    return Configuration(ServeConfig(port=0, workers=2, worker_timeout=math.inf), None)


def slots() -> Slots:
    """Of two worker processes; their supervisor closes them."""
    return Slots(ServeConfig(port=0), 2)


def test_a_fork_that_fails_at_first_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    before = signal.getsignal(signal.SIGTERM)
    overseer = Recorder()
    with pytest.raises(StartupError, match=r"Resource temporarily unavailable \(a limit of processes: ulimit -u"):
        Supervisor(configuration(), slots(), lambda *_, **__: None, overseer, Notifier()).run()
    assert signal.getsignal(signal.SIGTERM) is before
    assert overseer.calls == ["begin", "end"]


class Recorder(Overseer):
    """Records what a supervisor tells it, and that its selector can be used until the end."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._ends = socket.socketpair()

    def begin(self, controls: Controls) -> None:
        self.calls.append("begin")
        self._selector = controls.selector
        self._selector.register(self._ends[0], selectors.EVENT_READ)

    def end(self) -> None:
        self.calls.append("end")
        self._selector.unregister(self._ends[0])
        for end in self._ends:
            end.close()


class Restless(Overseer):
    """Wakes its supervisor all the time."""

    def until(self) -> float:
        return time.monotonic() + 0.01


@pytest.mark.parametrize("overseer", [None, Restless()], ids=["asleep", "woken often"])
@pytest.mark.parametrize("replaced", [False, True], ids=["missing", "to be replaced"])
def test_a_fork_that_fails_later_is_tried_again_after_the_delay(
    replaced: bool, overseer: Overseer | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, dict[str, object]]] = []
    supervisor = Supervisor(
        configuration(), slots(), lambda event, **fields: said.append((event, fields)), overseer, Notifier()
    )
    supervisor._stage = Stage.SERVING
    others = [serving_since_before_a_reload(supervisor, number) for number in (1, 2) if replaced]
    errors = iter([BlockingIOError(errno.EAGAIN, "too many"), BlockingIOError(errno.EAGAIN, "too many"), EOFError()])

    def refuse() -> int:
        raise next(errors)

    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(os, "waitpid", lambda *_: (0, 0))
    with pytest.raises(EOFError):
        supervisor.run()
    why = "too many (a limit of processes: ulimit -u, or the container's)"
    assert said == [
        ("cannot start a worker", {"level": "error", "why": why, "again_in": 0.1}),
        ("cannot start a worker", {"level": "error", "why": why, "again_in": 0.2}),
    ]
    for other in others:
        other.close()


def serving_since_before_a_reload(supervisor: Supervisor, number: int) -> socket.socket:
    """Add a worker process that serves and is to be replaced, and return its end."""
    # a pid that no process has
    return serving_as(supervisor, number, 2**22 + number, supervisor._rolling.generation - 1)


def serving_as(supervisor: Supervisor, number: int, pid: int, generation: int = 0) -> socket.socket:
    """Add a worker process that serves, and return its end."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours, supervisor._selector, lambda kind, payload: None)
    supervisor._workers[pid] = WorkerProcess(pid, channel, 0.0, number, generation, LastBlock(), ready=True)
    return theirs


def test_no_worker_is_added_beyond_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor(configuration(), slots(), lambda *_, **__: None, None, Notifier())
    supervisor._rolling.wanted = MOST_WORKERS
    monkeypatch.setattr(supervisor._signals, "read", lambda: [signal.SIGTTIN])
    supervisor._read_signals()
    assert supervisor._rolling.wanted == MOST_WORKERS
    supervisor._slots.close()
    supervisor._release()


class InTheWay(Overseer):
    """Keeps its supervisor busy while a Ctrl-C comes, which ends a worker process at once."""

    def __init__(self, ends: int) -> None:
        self._ends = ends

    def until(self) -> float:
        return time.monotonic() if self._ends else math.inf

    def tick(self) -> None:
        pid, self._ends = self._ends, 0
        if pid:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(pid, signal.SIGTERM)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_worker_that_ends_by_the_same_signal_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise EOFError

    said: list[tuple[str, dict[str, object]]] = []
    children = [os.posix_spawn("/bin/sleep", ["sleep", "100"], {}) for _ in range(2)]
    supervisor = Supervisor(
        configuration(),
        slots(),
        lambda event, **fields: said.append((event, fields)),
        InTheWay(children[0]),
        Notifier(),
    )
    supervisor._stage = Stage.SERVING
    others = [serving_as(supervisor, number, pid) for number, pid in enumerate(children, 1)]
    monkeypatch.setattr(os, "fork", refuse)
    with contextlib.ExitStack() as stack:
        # a supervisor that has ended leaves them ignored
        for number in STOPS:
            stack.callback(signal.signal, number, signal.getsignal(number))
        supervisor.run()
    assert said[0] == ("stopping the workers", {"signal": "SIGINT", "workers": 2})
    for other in others:
        other.close()


# the end


def signal_unless_drained(pid: int, number: signal.Signals) -> None:
    """Signal a worker process during a drain. The one that serves no request may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def test_a_drain_that_everybody_hears_of_twice_lets_a_request_finish(start: Starter) -> None:
    # a service manager signals each process of a service, and the supervisor does so, too
    process, *workers = two_workers(start, "apps:slow", "--drain", "1h")
    with begun(process) as client:
        process.signal()
        for pid in workers:
            signal_unless_drained(pid, signal.SIGTERM)
        for _ in workers:
            process.wait_for("draining")
        assert read_all(client).endswith("finished")
    assert process.end() == (0, "")


def test_a_drain_of_months_lets_a_reload_and_the_end_come(start: Starter) -> None:
    # nothing else wakes the supervisor
    process, *_ = two_workers(start, "apps:slow", "--drain", "90d", "--worker-timeout", "off")
    with begun(process) as client:
        process.signal(signal.SIGHUP)
        process.wait_for("workers replaced")
        process.signal()
        assert read_all(client).endswith("finished")
    assert process.end() == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_comes_when_the_application_is_being_ended_lets_it_end(start: Starter, number: signal.Signals) -> None:
    process, *workers = two_workers(start, "apps:patient", "--drain", "1h")
    process.signal()
    for _ in workers:
        process.wait_until("ending")
    for pid in workers:
        os.kill(pid, number)
        os.kill(pid, signal.SIGUSR1)
    assert process.end() == (0, "")
    assert len(process.events("stopped")) == 2


def test_a_second_signal_ends_all_at_once(start: Starter) -> None:
    process, *_ = two_workers(start, "apps:endless", "--drain", "1h")
    with begun(process) as client:
        process.signal()
        process.wait_for("draining")
        process.wait_for("draining")
        process.signal_later()
        assert read_all(client) == ""
        assert process.end() == (4, "")


def test_a_second_signal_cuts_a_lifespan_that_does_not_end(start: Starter) -> None:
    process, *workers = two_workers(start, "apps:patient", "--drain", "1h")
    process.signal()
    for _ in workers:
        process.wait_until("ending")
    process.signal_later()
    assert process.end() == (0, "")
    cut = "the application did not finish its lifespan shutdown within 1 s; a longer drain (--drain) gives it more"
    assert len(process.events(cut)) == 2
    assert len(process.events("stopped")) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_supervisor_whose_worker_processes_have_ended_is_ended_by_no_signal(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Overseer):
        def end(self) -> None:
            signal.raise_signal(number)

    class Stopped(Supervisor):
        def _start(self, number: int) -> None:
            signal.raise_signal(signal.SIGTERM)
            self._read_signals()

    handlers = {each: signal.getsignal(each) for each in STOPS}
    try:
        assert Stopped(configuration(), slots(), lambda *_, **__: None, Late(), Notifier()).run() == 0
        # until the process ends
        signal.raise_signal(number)
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def test_the_drain_cuts_what_does_not_end(start: Starter) -> None:
    process, *_ = two_workers(start, "apps:endless", "--drain", "500ms")
    with begun(process) as client:
        process.signal(signal.SIGINT)
        assert process.end() == (4, "")
        assert read_all(client) == ""
    assert [line["reason"] for line in process.events("connection")] == ["drain_timeout"]


def test_a_worker_that_hangs_is_killed(start: Starter) -> None:
    process, first, _ = two_workers(start, "apps:pid", "--drain", "0")
    os.kill(first, signal.SIGSTOP)
    process.signal()
    assert process.end() == (1, "")
    (killed,) = process.events("workers did not end in time: killed")
    assert all("hint" not in ended for ended in process.events("worker ended"))
    assert killed["pids"] == [first]


def test_workers_whose_supervisor_was_killed_drain(start: Starter) -> None:
    process, *_ = two_workers(start, "apps:slow", "--drain", "1h")
    with begun(process) as client:
        process.signal(signal.SIGKILL)
        assert read_all(client).endswith("finished")
        # their end of its stdout is closed, too
        assert process.end() == (-signal.SIGKILL, "")
    assert len(process.events("draining")) == len(process.events("stopped")) == 2


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="no other kernel tells a child that its parent is dead")


@on_linux
def test_one_that_hangs_ends_when_its_supervisor_was_killed(start: Starter) -> None:
    process, *_ = two_workers(start, "apps:blocking", "--drain", "0.5s")
    with begun(process):
        process.signal(signal.SIGKILL)
        # all of its stdout is closed
        code, said = process.end()
    assert code == -signal.SIGKILL
    assert "the process did not end within the drain of 0.5 s; ending it" in said


@on_linux
def test_one_that_does_not_serve_yet_ends_when_its_supervisor_was_killed(start: Starter, tmp_path: Path) -> None:
    app = tmp_path / "shop.py"
    app.write_text("from apps import pid as app\n")
    process, *_ = two_workers(start, "shop:app")
    app.write_text("import sys, time\nprint('starting', file=sys.stderr, flush=True)\ntime.sleep(600)\n")
    process.signal(signal.SIGHUP)
    process.wait_until("starting")
    process.signal(signal.SIGKILL)
    assert process.end() == (-signal.SIGKILL, "")
    assert len(process.events("stopped before it served")) == 1


def test_nobody_is_started_again_during_a_drain(start: Starter) -> None:
    process, first, second = two_workers(start, "apps:endless", "--drain", "1h")
    with begun(process):
        process.signal()
        process.wait_for("draining")
        process.wait_for("draining")
        for pid in (first, second):
            signal_unless_drained(pid, signal.SIGKILL)
        assert process.end() == (1, "")
    assert pids(process) == {first, second}
