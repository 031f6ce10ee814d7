"""The command as a function: what it refuses, because only `deadlined.asgi.serve` can do it. And a system that refuses
what it needs."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.service import ServeConfig, serve
from tests.support.command import APPS, COMMAND, Process, launched, run
from tests.support.conformance import Loop, on_each_loop


async def app_of_nobody(scope: Scope, receive: Receive, send: Send) -> None:
    """Never called."""


def test_the_configuration_of_the_command_takes_no_object_and_says_what_does() -> None:
    with pytest.raises(TypeError, match=r"not an object of type function: await deadlined\.asgi\.serve\(app\)"):
        ServeConfig(app=app_of_nobody)  # type: ignore[arg-type]


@on_each_loop
async def test_the_command_refuses_a_running_event_loop_and_says_what_serves_there(loop: Loop) -> None:
    with pytest.raises(RuntimeError, match=r"one runs here already: await deadlined\.asgi\.serve\(app\)"):
        serve(ServeConfig())


def test_the_command_refuses_a_thread_and_says_what_serves_there() -> None:
    raised: list[BaseException] = []

    def main() -> None:
        try:
            serve(ServeConfig())
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
    assert "main thread only: run deadlined.asgi.serve(app)" in str(raised[0])


# as in a sandbox, or where no descriptor is left; Python imports this module itself
SANDBOX = """
import socket

def refuse(*_):
    raise PermissionError(1, "Operation not permitted")

socket.socketpair = refuse
"""


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--loop", "trio"), "the event loop"),
        (("--loop", "asyncio"), "the event loop"),
        (("--loop", "uvloop"), "the event loop"),
        (("--workers", "2"), "the supervisor"),
        pytest.param(("--reload",), "the parent of --reload", marks=pytest.mark.integration),
    ],
    ids=str,
)
def test_a_system_that_refuses_what_a_start_needs_is_told_as_its_failure(
    tmp_path: Path, arguments: tuple[str, ...], what: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SANDBOX)
    (tmp_path / "app.py").write_text("async def app(scope, receive, send):\n    raise NotImplementedError\n")
    path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[3]}"
    completed = run("serve", "app:app", "--uds", "socket", *arguments, cwd=tmp_path, PYTHONPATH=path)
    why = f"cannot start {what}: Operation not permitted"
    # asyncio and uvloop themselves complain of their broken loop
    assert (completed.returncode, completed.stderr.splitlines().count(f"Error: {why}")) == (1, 1), completed.stderr
    lines = [json.loads(line) for line in completed.stdout.splitlines()]
    assert [line["why"] for line in lines if line["event"] == "startup failed"] == [why]
    assert not (tmp_path / "socket").exists()


LOW_LIMIT = """
import resource

resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
"""


@pytest.mark.parametrize("loop", ["trio", "asyncio", "uvloop"])
@pytest.mark.parametrize("limit", [8, 13, 31])
def test_too_few_files_are_told_by_their_limit(tmp_path: Path, loop: str, limit: int) -> None:
    (tmp_path / "sitecustomize.py").write_text(LOW_LIMIT.format(limit=limit))
    (tmp_path / "app.py").write_text("async def app(scope, receive, send):\n    raise NotImplementedError\n")
    path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[3]}"
    completed = run("serve", "app:app", "--uds", "socket", "--loop", loop, cwd=tmp_path, PYTHONPATH=path)
    assert completed.returncode == 1
    assert completed.stderr.startswith(f"Error: this process may open {limit} files, and needs 32, and one more for ")
    assert len(completed.stderr.splitlines()) == 1
    (line,) = (json.loads(line) for line in completed.stdout.splitlines())
    assert line["event"] == "startup failed"


@pytest.mark.parametrize(
    ("arguments", "serving"),
    [(("--workers", "2"), 2), pytest.param(("--reload",), 1, marks=pytest.mark.integration)],
    ids=str,
)
def test_a_low_soft_limit_of_files_is_raised_for_the_parent_of_the_serving_processes_too(
    tmp_path: Path, arguments: tuple[str, ...], serving: int
) -> None:
    (tmp_path / "apps.py").write_text(APPS)
    limited = ["sh", "-c", 'ulimit -S -n 10; exec "$@"', "sh", *COMMAND]
    with launched("serve", "apps:pid", "--uds", "socket", *arguments, cwd=tmp_path, command=limited) as started:
        process = Process(started)
        process.wait_for_all(*["listening"] * (serving - 1))
        process.signal()
        assert process.end() == (0, "")
    assert len(process.events("listening")) == serving
