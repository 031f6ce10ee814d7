"""A stop while the application starts: exit code 0, and the application's own blocks run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock

import pytest

from deadlined.runtime import LOOPS, Event, call_soon, open_group
from deadlined.runtime import run as run_loop
from deadlined.service.process.children import children_get
from deadlined.service.process.signals import SAME_STOP, STOPS, ignore_stops
from deadlined.service.serving.starting import Starting, replaced_by
from tests.support.command import COMMAND, Process, launched, rest_of, run, wait_until_starting
from tests.support.runtime import forks

# In steps: a signal that comes after Python's last look, and before the system call, is seen at the end of that call.
IMPORT = """
import sys, time
try:
    print("starting", file=sys.stderr, flush=True)
    for _ in range(600):
        time.sleep(0.1)
finally:
    print("undone", file=sys.stderr, flush=True)
"""

LIFESPAN = """
import sys
async def app(scope, receive, send):
    await receive()
    try:
        print("starting", file=sys.stderr, flush=True)
        await {sleep}(60)
    finally:
        print("undone", file=sys.stderr, flush=True)
"""

APPS = {
    "import": IMPORT,
    "exec": f"exec({IMPORT!r})",
    "asyncio": "import asyncio\n" + LIFESPAN.format(sleep="asyncio.sleep"),
    "uvloop": "import asyncio\n" + LIFESPAN.format(sleep="asyncio.sleep"),
    "trio": "import trio\n" + LIFESPAN.format(sleep="trio.sleep"),
}

HOW = {
    "one process": (),
    "workers": ("--workers", "2"),
    "reload": ("--reload",),
}


def stopped(
    directory: Path, app: str, number: signal.Signals, *arguments: str, ignoring: bool = False
) -> tuple[int, list[str], str]:
    """Start a server, signal it while its application starts: SIGINT as a terminal does, to all. Return its exit code,
    the events of its log, and its stderr."""
    (directory / "starts.py").write_text(APPS[app])
    loop = app if app in LOOPS else "trio"
    # a shell starts its background jobs with SIGINT ignored
    shell = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"] if ignoring else []
    given = ("serve", "starts:app", "--uds", "socket", "--loop", loop, *arguments)
    variables = {"PYTHONWARNINGS": "default::ResourceWarning"}
    with launched(*given, cwd=directory, command=[*shell, *COMMAND], variables=variables) as process:
        wait_until_starting(process)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        out, err = rest_of(process)
    return process.returncode, [json.loads(line)["event"] for line in out.splitlines()], err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize(
    ("app", "how"),
    [
        ("import", "one process"),
        ("exec", "one process"),
        ("trio", "one process"),
        pytest.param("asyncio", "one process", marks=pytest.mark.thorough),
        pytest.param("uvloop", "one process", marks=pytest.mark.thorough),
        pytest.param("import", "workers", marks=pytest.mark.thorough),
        ("trio", "workers"),
        ("asyncio", "workers"),
        pytest.param("uvloop", "workers", marks=pytest.mark.thorough),
        pytest.param("import", "reload", marks=pytest.mark.thorough),
        pytest.param("asyncio", "reload", marks=pytest.mark.thorough),
    ],
)
def test_a_stop_before_it_serves_is_no_failure(tmp_path: Path, app: str, how: str, number: signal.Signals) -> None:
    code, events, err = stopped(tmp_path, app, number, *HOW[how])
    assert (code, err) == (0, "undone\n")
    assert "stopped before it served" in events
    assert not (tmp_path / "socket").exists()


# a supervisor tells its processes after the terminal has, or before
TWICE = """
import os, signal
def again():
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize(
    ("app", "how"),
    [
        ("trio", "workers"),
        ("asyncio", "workers"),
        pytest.param("uvloop", "workers", marks=pytest.mark.thorough),
        ("import", "workers"),
        pytest.param("trio", "reload", marks=pytest.mark.thorough),
    ],
)
def test_a_process_that_is_told_more_than_once_undoes_what_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: str, how: str, number: signal.Signals
) -> None:
    told_again = APPS[app].replace(
        "finally:\n", "finally:\n        again()\n" if app != "import" else "finally:\n    again()\n"
    )
    monkeypatch.setitem(APPS, app, TWICE + told_again)
    code, events, err = stopped(tmp_path, app, number, *HOW[how])
    assert (code, err) == (0, "undone\n")
    assert "stopped before it served" in events


def test_nor_where_ctrl_c_is_ignored(tmp_path: Path) -> None:
    assert stopped(tmp_path, "import", signal.SIGTERM, ignoring=True) == (0, [], "")


# signals itself when its handler gives way to those of a process that serves: trio keeps what comes in its own code
LATE = """
import signal, sys
from deadlined.service.serving import stopping
from deadlined.runtime import protected_from_interrupts

entered = stopping.Stopper.__enter__

@protected_from_interrupts
def enter(stopper):
    signal.raise_signal(signal.SIGTERM)
    return entered(stopper)

stopping.Stopper.__enter__ = enter

async def app(scope, receive, send):
    raise NotImplementedError
"""


@pytest.mark.parametrize("loop", ["trio", "asyncio", "uvloop"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_nor_in_the_last_moment_before_it_serves(tmp_path: Path, loop: str, workers: str) -> None:
    """Of two worker processes, the first one alone is signalled, and not its supervisor."""
    (tmp_path / "late.py").write_text(LATE)
    done = run("serve", "late:app", "--uds", "socket", "--loop", loop, "--workers", workers, cwd=tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)
    assert "stopped before it served" in done.stdout


# an interrupt that nobody sees: Python reports the errors of a callback, and goes on
SWALLOWED = """
import signal, weakref

class Module:
    pass

def stop():
    module = Module()
    reference = weakref.ref(module, lambda _: signal.raise_signal(signal.{name}))
    del module
    assert reference() is None

{imported}

async def app(scope, receive, send):
    await receive()
    {started}
    await send({{"type": "lifespan.startup.complete"}})
    await receive()
    await send({{"type": "lifespan.shutdown.complete"}})
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize(("imported", "started"), [("stop()", "pass"), ("pass", "stop()")], ids=["import", "lifespan"])
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.thorough)])
def test_a_stop_whose_interrupt_was_swallowed_is_one(
    tmp_path: Path, workers: str, imported: str, started: str, number: signal.Signals
) -> None:
    source = SWALLOWED.format(name=number.name, imported=imported, started=started)
    (tmp_path / "swallows.py").write_text(source)
    done = run("serve", "swallows:app", "--uds", "socket", "--workers", workers, cwd=tmp_path)
    assert done.returncode == 0
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == ["stopped before it served"]


CAUGHT = """
import asyncio, signal

async def app(scope, receive, send):
    await receive()
    try:
        signal.raise_signal(signal.{name})
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        pass
    await send({{"type": "lifespan.startup.complete"}})
    print((await receive())["type"])
    await send({{"type": "lifespan.shutdown.complete"}})
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("loop", ["asyncio", pytest.param("uvloop", marks=pytest.mark.thorough)])
def test_an_application_that_goes_on_to_start_is_told_to_shut_down(
    tmp_path: Path, loop: str, number: signal.Signals
) -> None:
    (tmp_path / "catches.py").write_text(CAUGHT.format(name=number.name))
    done = run("serve", "catches:app", "--uds", "socket", "--loop", loop, cwd=tmp_path)
    told, stopped = done.stdout.splitlines()
    assert (done.returncode, told) == (0, "lifespan.shutdown")
    assert json.loads(stopped)["event"] == "stopped before it served"


# signals the first process that is forked, before it has done anything
EARLY = """
import os, signal, sys
from contextlib import suppress
from pathlib import Path

def hit():
    if not Path("hit").exists():
        Path("hit").touch()
        os.kill(os.getpid(), signal.{name})

os.register_at_fork(after_in_child=hit)

from deadlined.__main__ import run
sys.exit(run())
"""

SERVES = """
async def app(scope, receive, send):
    raise NotImplementedError
"""


def early(directory: Path, number: signal.Signals) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a service of two worker processes, of which the first one is signalled in its first moment."""
    (directory / "serves.py").write_text(SERVES)
    command = [sys.executable, "-c", EARLY.format(name=number.name)]
    return launched("serve", "serves:app", "--port", "0", "--workers", "2", cwd=directory, command=command)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_nor_of_the_first_worker_process_in_its_first_moment(tmp_path: Path, number: signal.Signals) -> None:
    with early(tmp_path, number) as process:
        out, err = rest_of(process)
    assert (process.returncode, err) == (0, "")
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["stopped before it served"]


def listening(process: Process) -> set[int]:
    return {line["pid"] for line in process.events("listening")}


def test_a_hangup_in_that_moment_is_kept_until_it_serves(tmp_path: Path) -> None:
    with early(tmp_path, signal.SIGHUP) as running:
        process = Process(running)
        # it is replaced, and the other one is started; it may have drained before it was given a socket
        while not (ended := process.events("worker ended")) or len(listening(process) - {ended[0]["pid"]}) < 2:
            process.next_line()
        process.signal()
        assert process.end() == (0, "")
        assert process.events("draining")[0]["signal"] == "SIGHUP"


# the handler


BOTH = (signal.SIGTERM, signal.SIGINT)


class Ended(BaseException):
    pass


@pytest.fixture
def watchdogs() -> list[tuple[float, Callable[[], object]]]:
    """What ends the process later, and when."""
    return []


@pytest.fixture
def made(
    monkeypatch: pytest.MonkeyPatch, watchdogs: list[tuple[float, Callable[[], object]]]
) -> Iterator[Callable[..., Starting]]:
    """Make handlers that raise Ended in place of ending the process, and whose watchdog runs no thread. Two signals are
    never of the same stop, unless `clock` says so."""
    before = {number: signal.getsignal(number) for number in STOPS}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def timer(*arguments: Any) -> Mock:
        watchdogs.append(arguments)
        return Mock()

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(threading, "Timer", timer)
    yield lambda **options: Starting(end=end, **{"clock": partial(next, count(0.0, SAME_STOP)), **options})
    for number, handler in before.items():
        signal.signal(number, handler)
    children_get({})
    assert signal.pthread_sigmask(signal.SIG_SETMASK, blocked) == blocked
    assert all(watchdog[0] == 2.0 for watchdog in watchdogs)


def test_the_second_one_ends_the_process_at_once(made: Callable[..., Starting]) -> None:
    starting = made()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert starting.stopped_by == "SIGTERM"
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("second", BOTH, ids=lambda number: number.name)
@pytest.mark.parametrize("first", BOTH, ids=lambda number: number.name)
def test_a_second_one_at_once_interrupts_and_ends_nothing(
    made: Callable[..., Starting], first: signal.Signals, second: signal.Signals
) -> None:
    starting = made(clock=lambda: 50.0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(first)
    signal.raise_signal(second)
    starting.end_at_next_signal()
    signal.raise_signal(second)
    assert starting.stopped_by == first.name


def test_ctrl_c_does_not_take_the_margin_from_a_sigterm_of_the_same_stop(
    made: Callable[..., Starting], watchdogs: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = made(clock=lambda: 50.0)
    begin: Any = threading.Timer

    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return begin(*arguments)

    monkeypatch.setattr(threading, "Timer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert (starting.stopped_by, len(watchdogs)) == ("SIGTERM", 1)


def test_the_first_one_after_a_start_that_none_has_ended_ends_the_process(made: Callable[..., Starting]) -> None:
    made(clock=lambda: 50.0).end_at_next_signal()
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", BOTH, ids=lambda number: number.name)
def test_one_ends_a_process_that_stays_after_its_start_was_stopped(tmp_path: Path, number: signal.Signals) -> None:
    """A thread of the application's keeps it, and Ctrl-C has begun no time."""
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()\n"
    (tmp_path / "stays.py").write_text(thread + APPS["trio"])
    with launched("serve", "stays:app", "--uds", "socket", cwd=tmp_path) as process:
        wait_until_starting(process)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "stopped before it served"
        # it ignores signals until the line is written
        while process.poll() is None:
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
    assert process.returncode == 0


def test_when_the_start_has_ended_any_does_nothing_where_a_supervisor_signals_as_well(
    made: Callable[..., Starting],
) -> None:
    made(supervised=True).end_at_next_signal()
    for number in BOTH:
        signal.raise_signal(number)


def test_the_second_one_does_nothing_where_a_supervisor_signals_as_well(made: Callable[..., Starting]) -> None:
    starting = made(supervised=True)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert starting.stopped_by == "SIGTERM"


def test_one_that_comes_while_ctrl_c_ends_the_start_changes_nothing(made: Callable[..., Starting]) -> None:
    starting = made()
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        signal.raise_signal(signal.SIGTERM)
        ignore_stops()
        signal.raise_signal(signal.SIGINT)
    assert starting.stopped_by == "SIGINT"


def test_once_the_application_has_started_it_is_kept_for_the_next_handlers(made: Callable[..., Starting]) -> None:
    starting = made(clock=lambda: 50.0)
    starting.keep_signals()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
        signal.raise_signal(number)
    starting.go_on()
    passed: list[int] = []
    for number in BOTH:
        signal.signal(number, lambda number, _: passed.append(number))
    for _ in range(2):
        starting.pass_on()
    assert passed == [signal.SIGINT, signal.SIGTERM]


def test_a_second_one_ends_the_process_at_once_then_too(made: Callable[..., Starting]) -> None:
    made().keep_signals()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("passed_on", [False, True])
def test_so_does_the_margin_unless_it_was_passed_on(
    made: Callable[..., Starting], watchdogs: list[tuple[float, Callable[[], object]]], passed_on: bool
) -> None:
    starting = made()
    starting.keep_signals()
    signal.raise_signal(signal.SIGTERM)
    if passed_on:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        starting.pass_on()
    ((_, end),) = watchdogs
    with nullcontext() if passed_on else pytest.raises(Ended):
        end()


def test_one_that_has_ended_the_start_is_not_kept(made: Callable[..., Starting]) -> None:
    starting = made()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    starting.keep_signals()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        starting.go_on()


@pytest.mark.parametrize("second", BOTH, ids=lambda number: number.name)
@pytest.mark.parametrize("first", BOTH, ids=lambda number: number.name)
@pytest.mark.parametrize("loop", LOOPS)
def test_only_the_first_one_interrupts_a_run(
    made: Callable[..., Starting], loop: str, first: signal.Signals, second: signal.Signals
) -> None:
    """It comes while the event loop waits, and the second one in a task that the first one has cancelled."""
    starting = made(supervised=True)
    steps: list[str] = []

    async def child() -> None:
        call_soon()(signal.raise_signal, first)
        try:
            await Event().wait()
        finally:
            steps.append("begins")
            signal.raise_signal(second)
            steps.append("undone")

    async def main() -> None:
        with starting.in_run():
            async with open_group() as group:
                group.start_soon(child)
                await Event().wait()

    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as caught, starting.around_run():
        run_loop(loop, main)
    assert steps == ["begins", "undone"]
    assert is_interrupt(caught.value)
    assert starting.stopped_by == first.name
    # and nothing interrupts what follows
    for number in BOTH:
        signal.raise_signal(number)


def is_interrupt(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(KeyboardInterrupt)[1] is None
    return isinstance(error, KeyboardInterrupt)


@pytest.mark.parametrize("number", BOTH, ids=lambda number: number.name)
@pytest.mark.parametrize("loop", LOOPS)
def test_one_that_comes_while_the_event_loop_begins_waits_for_the_run(
    made: Callable[..., Starting], loop: str, number: signal.Signals
) -> None:
    starting = made(supervised=True)
    steps: list[str] = []

    async def main() -> None:
        steps.append("begins")
        try:
            with starting.in_run():
                await Event().wait()
        finally:
            signal.raise_signal(signal.SIGINT)
            steps.append("undone")

    with pytest.raises(KeyboardInterrupt), starting.around_run():
        signal.raise_signal(number)
        run_loop(loop, main)
    assert steps == ["begins", "undone"]
    assert starting.stopped_by == number.name


def test_signals_come_again_if_no_event_loop_begins(made: Callable[..., Starting]) -> None:
    starting = made()
    with pytest.raises(ImportError), starting.around_run():
        raise ImportError
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_is_the_loops_again_after_a_start_that_was_not_stopped(made: Callable[..., Starting], loop: str) -> None:
    starting = made()
    found: list[object] = []

    async def main() -> None:
        with starting.in_run():
            found.append(signal.getsignal(signal.SIGINT))
        found.append(signal.getsignal(signal.SIGINT))

    with starting.around_run():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        run_loop(loop, main)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert found[0] is starting
    assert found[1] not in (starting, signal.default_int_handler)
    assert signal.getsignal(signal.SIGINT) is starting


def test_one_process_is_interrupted_by_each_ctrl_c_and_not_by_sigterm_after_it(made: Callable[..., Starting]) -> None:
    starting = made()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    assert starting.stopped_by == "SIGINT"
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGTERM)


def test_a_handler_that_takes_its_place_finds_the_one_from_before(made: Callable[..., Starting]) -> None:
    def before(number: int, frame: FrameType | None) -> None:
        raise NotImplementedError

    signal.signal(signal.SIGTERM, before)
    made()
    assert replaced_by(signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_DFL)) is before
    assert replaced_by(signal.SIGTERM, signal.SIG_DFL) == signal.SIG_DFL


@forks
def test_a_child_of_the_application_is_ended_by_the_signal(made: Callable[..., Starting]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    made()
    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
