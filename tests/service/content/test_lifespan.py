"""`--lifespan auto|on|off`: what it makes of a startup that fails, in each way to start the application; and when the
application is told to shut down."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from deadlined.runtime import LOOPS
from tests.support.command import Process, Starter, assert_error, launched, rest_of, run, wait_until_starting

APP = """
import os

class Told:
    def __init__(self):
        self.messages = []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            self.messages.append((await receive())["type"])
            if os.environ.get("STARTS") != "yes":
                raise LookupError("no database")
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": " ".join(self.messages).encode()})

app = Told()

def make():
    return Told()
"""

WARNING = "the application is served without a lifespan, it raised LookupError('no database')"
FAILED = "the application failed to start: it raised LookupError('no database') before lifespan.startup.complete ("


@pytest.fixture(autouse=True)
def site(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(APP)


def body(process: Process) -> str:
    return process.get().partition("\r\n\r\n")[2]


WAYS = {
    **{loop: ("told:app", "--loop", loop) for loop in LOOPS},
    "factory": ("told:make", "--factory"),
    "workers": ("told:app", "--workers", "2"),
}


@pytest.mark.parametrize("arguments", WAYS.values(), ids=WAYS)
def test_on_a_startup_that_raises_ends_the_start_with_its_traceback(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    completed = run("serve", *arguments, "--lifespan", "on", "--port", "0", cwd=tmp_path)
    assert_error(completed, 1, FAILED, "told.py")
    assert f'  File "{tmp_path}/told.py", line 12, in __call__' in completed.stderr
    assert "LookupError: no database" in completed.stderr
    events = [json.loads(line)["event"] for line in completed.stdout.splitlines()]
    assert "startup failed" in events
    assert "listening" not in events


@pytest.mark.parametrize("arguments", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("mode", ["on", "off"])
def test_what_is_served_has_been_told_of_its_start_unless_it_is_off(
    start: Starter, arguments: tuple[str, ...], mode: str
) -> None:
    process = start(*arguments, "--lifespan", mode, STARTS="yes")
    assert body(process) == ("" if mode == "off" else "lifespan.startup")
    process.signal()
    assert process.end() == (0, "")
    assert [line for line in process.lines if line["level"] in ("warning", "error")] == []


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("mode", "told", "warnings"), [("auto", "lifespan.startup", [WARNING]), ("off", "", [])])
def test_a_startup_that_raises_is_a_warning_or_never_begun(
    start: Starter, loop: str, mode: str, told: str, warnings: list[str]
) -> None:
    process = start("told:app", "--loop", loop, DEADLINED_LIFESPAN=mode)
    assert body(process) == told
    assert [line["event"] for line in process.lines if line["level"] == "warning"] == warnings


def test_on_an_application_without_a_lifespan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("async def app(scope, receive, send):\n    assert scope['type'] == 'http'\n")
    completed = run("serve", "plain:app", "--lifespan", "on", "--port", "0", cwd=tmp_path)
    assert_error(completed, 1, "the application failed to start: it has no lifespan, it raised AssertionError()")


GROUP = """\
import asyncio, traceback

async def connect():
    raise ConnectionRefusedError("the broker refuses")

async def app(scope, receive, send):
    await receive()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(connect())
    except* OSError:
        await send({"type": "lifespan.startup.failed", "message": traceback.format_exc()})
        raise
"""


def test_a_group_that_ends_the_start_is_told_as_its_innermost_error(tmp_path: Path) -> None:
    (tmp_path / "grouped.py").write_text(GROUP)
    completed = run("serve", "grouped:app", "--loop", "asyncio", "--port", "0", cwd=tmp_path)
    line = f"ConnectionRefusedError: the broker refuses ({tmp_path}/grouped.py, line 4)"
    assert completed.stderr.splitlines()[-1] == f"Error: the application failed to start: {line}"
    assert completed.returncode == 1


def test_on_a_reload_waits_for_the_change_that_mends_the_startup(tmp_path: Path) -> None:
    with launched("serve", "told:app", "--reload", "--lifespan", "on", "--port", "0", cwd=tmp_path) as command:
        assert command.stdout is not None
        assert "startup failed" in command.stdout.readline()
        assert "waiting for a change" in command.stdout.readline()
        (tmp_path / "told.py").write_text(APP.replace('"STARTS"', '"PATH"').replace('!= "yes"', "is None"))
        process = Process(command)
        assert body(process) == "lifespan.startup"
        process.signal()
        code, err = process.end()
        assert code == 0
        assert FAILED in err


STUBBORN = """
import asyncio, sys
import trio

def say(what):
    print(what, file=sys.stderr, flush=True)

async def go_on():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            say("cancelled")

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        say("shut down")
        await send({"type": "lifespan.shutdown.complete"})
        return
    say("busy")
    if trio.lowlevel.in_trio_task():
        with trio.CancelScope(shield=True):
            await trio.sleep(3600)
    await go_on()
"""


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("loop", LOOPS)
def test_an_application_is_told_to_shut_down_although_its_requests_go_on(
    start: Starter, tmp_path: Path, loop: str, signals: int
) -> None:
    """As a plain `def` endpoint does, whose thread nothing can end."""
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    process = start("stubborn:app", "--loop", loop, "--drain", "10ms" if signals == 1 else "1h")
    with process.begin("/"):
        process.wait_until_busy()
        process.signal()
        if signals == 2:
            process.wait_for("draining")
            process.signal_later()
        code, err = process.end()
    lines = err.splitlines()
    assert (code, lines.count("shut down"), "deadlined: the process did not end" in err) == (1, 1, True), err
    if loop != "trio":
        assert lines.index("cancelled") < lines.index("shut down")


# is stopped as soon as it has started: itself, and the process that has started it, if that is one of the service
STARTED = """
import os, signal

async def app(scope, receive, send):
    await receive()
    await send({{"type": "lifespan.startup.complete"}})
    if {supervised}:
        os.kill(os.getppid(), signal.{name})
    signal.raise_signal(signal.{name})
    print((await receive())["type"], flush=True)
    await send({{"type": "lifespan.shutdown.complete"}})
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", [(), ("--reload",), ("--workers", "2")], ids=["one process", "reload", "workers"])
def test_an_application_that_has_just_started_is_told_to_shut_down(
    tmp_path: Path, how: tuple[str, ...], loop: str, number: signal.Signals
) -> None:
    source = STARTED.format(name=number.name, supervised=bool(how))
    (tmp_path / "started.py").write_text(source)
    done = run("serve", "started:app", "--uds", "socket", "--loop", loop, *how, cwd=tmp_path)
    told = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    assert (done.returncode, done.stderr) == (0, "")
    # of two worker processes one may have been stopped before its application had started
    assert set(told) == {"lifespan.shutdown"}
    assert "stopped" in [json.loads(line)["event"] for line in done.stdout.splitlines() if line.startswith("{")]


# holds the event loop, once it has started, until a file is there
HOLDS = """
import pathlib, sys, time

async def app(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    print("starting", file=sys.stderr, flush=True)
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    print((await receive())["type"], file=sys.stderr, flush=True)
    await send({"type": "lifespan.shutdown.complete"})
"""


def test_an_application_whose_supervisor_stops_before_it_serves_is_told_to_shut_down(tmp_path: Path) -> None:
    """Its process is given no socket to accept from."""
    (tmp_path / "holds.py").write_text(HOLDS)
    with launched("serve", "holds:app", "--uds", "socket", "--workers", "2", cwd=tmp_path) as command:
        wait_until_starting(command)
        command.terminate()
        assert command.stdout is not None
        assert json.loads(command.stdout.readline())["event"] == "stopping the workers"
        (tmp_path / "go").touch()
        out, err = rest_of(command)
    assert (command.returncode, err) == (0, "lifespan.shutdown\n")
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["draining", "stopped"]
