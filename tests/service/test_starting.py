"""A stop while the application starts: exit code 0, and the application's own blocks run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from deadlined.service.children import children_get
from deadlined.service.starting import Starting, replaced_by
from tests.support.command import COMMAND, PATIENCE, environment, kill_all, run

IMPORT = """
import sys, time
try:
    print("starting", file=sys.stderr, flush=True)
    time.sleep(60)
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
    loop = app if app != "import" else "trio"
    # a shell starts its background jobs with SIGINT ignored
    shell = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"] if ignoring else []
    with subprocess.Popen(
        [*shell, *COMMAND, "serve", "starts:app", "--uds", "socket", "--loop", loop, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        env=environment(),
        start_new_session=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "starting\n"
            if number == signal.SIGINT:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            kill_all(process)
    return process.returncode, [json.loads(line)["event"] for line in out.splitlines()], err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize(
    ("app", "how"),
    [
        ("import", "one process"),
        ("trio", "one process"),
        pytest.param("asyncio", "one process", marks=pytest.mark.thorough),
        pytest.param("uvloop", "one process", marks=pytest.mark.thorough),
        pytest.param("import", "workers", marks=pytest.mark.thorough),
        ("trio", "workers"),
        pytest.param("import", "reload", marks=pytest.mark.thorough),
        pytest.param("asyncio", "reload", marks=pytest.mark.thorough),
    ],
)
def test_a_stop_before_it_serves_is_no_failure(tmp_path: Path, app: str, how: str, number: signal.Signals) -> None:
    code, events, err = stopped(tmp_path, app, number, *HOW[how])
    assert (code, err) == (0, "undone\n")
    assert "stopped before it served" in events
    assert not (tmp_path / "socket").exists()


def test_nor_where_ctrl_c_is_ignored(tmp_path: Path) -> None:
    assert stopped(tmp_path, "import", signal.SIGTERM, ignoring=True) == (0, [], "")


# signals itself when its handler gives way to those of a process that serves: trio keeps what comes in its own code
LATE = """
import signal, sys
from deadlined.service import stopping
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
    (tmp_path / "late.py").write_text(LATE)
    done = run("serve", "late:app", "--uds", "socket", "--loop", loop, "--workers", workers, cwd=tmp_path)
    assert ("Aborted" in done.stderr, done.returncode) == (False, 1 if workers == "2" else 0), done.stderr
    assert "stopped before it served" in done.stdout


# the handler


class Ended(BaseException):
    pass


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Starting]]:
    """Make handlers that raise Ended in place of ending the process, and whose watchdog runs no thread."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    watchdogs: list[tuple[float, Callable[..., object], tuple[int]]] = []

    class Timer:
        def __init__(self, *arguments: Any) -> None:
            watchdogs.append(arguments)

        def start(self) -> None:
            pass

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(threading, "Timer", Timer)
    yield lambda **options: Starting(end=end, **options)
    for number, handler in before.items():
        signal.signal(number, handler)
    children_get({})
    assert all(watchdog[0] == 2.0 for watchdog in watchdogs)


def test_the_second_one_ends_the_process_at_once(made: Callable[..., Starting]) -> None:
    starting = made()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert starting.signal == "SIGTERM"
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGTERM)


def test_the_second_one_does_nothing_where_a_supervisor_signals_as_well(made: Callable[..., Starting]) -> None:
    starting = made(supervised=True)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert starting.signal == "SIGTERM"


def test_one_that_comes_while_ctrl_c_ends_the_start_changes_nothing(made: Callable[..., Starting]) -> None:
    starting = made()
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        signal.raise_signal(signal.SIGTERM)
        starting.ignore_signals()
        signal.raise_signal(signal.SIGINT)
    assert starting.signal == "SIGINT"


def test_a_handler_that_takes_its_place_finds_the_one_from_before(made: Callable[..., Starting]) -> None:
    def before(number: int, frame: FrameType | None) -> None:
        raise NotImplementedError

    signal.signal(signal.SIGTERM, before)
    made()
    assert replaced_by(signal.signal(signal.SIGTERM, signal.SIG_DFL)) is before
    assert replaced_by(signal.SIG_DFL) == signal.SIG_DFL


def test_a_child_of_the_application_is_ended_by_the_signal(made: Callable[..., Starting]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    made()
    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
