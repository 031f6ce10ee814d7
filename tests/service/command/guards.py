"""The commands `deadlined run` and `deadlined proxy` as processes, and uvicorn behind them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.support.command import PATIENCE, Process, launched

# an application for uvicorn; `/slow` and `/endless` say on stderr that they have begun
SITE = """
import asyncio, json, os, sys

async def app(scope, receive, send):
    assert scope["type"] == "http"
    path = scope["path"]
    if path in ("/slow", "/endless"):
        print("busy", file=sys.stderr, flush=True)
        await asyncio.sleep(0.5 if path == "/slow" else 3600)
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    body = json.dumps({"pid": os.getpid(), "path": path, "headers": headers}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
"""

# says nothing, because it has the guard's stdout
UVICORN = [sys.executable, "-m", "uvicorn", "site_app:app", "--lifespan", "off", "--log-level", "critical"]
ON_SOCKET = [*UVICORN, "--uds", "{uds}"]
ON_PORT = [*UVICORN, "--port", "{port}"]

Guard = Callable[..., Process]


@contextmanager
def guards(directory: Path) -> Iterator[Guard]:
    """Give a function that starts `deadlined` with these arguments in a directory with the module `site_app`, and
    returns when it listens. Kill what runs at the end."""
    (directory / "site_app.py").write_text(SITE)
    with ExitStack() as stack:

        def start(*arguments: str, **variables: str) -> Process:
            ours = {"DEADLINED_PORT": "0", "TMPDIR": str(directory)}
            return Process(stack.enter_context(launched(*arguments, cwd=directory, variables=ours | variables)))

        yield start


@contextmanager
def uvicorn(directory: Path, name: str) -> Iterator[str]:
    """Run uvicorn at a unix socket, and give its address once it listens."""
    (directory / "site_app.py").write_text(SITE)
    path = directory / name
    arguments = [*UVICORN[:-1], "info", "--no-access-log", "--uds", str(path)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=directory) as process:
        try:
            assert process.stderr is not None
            assert any("running on" in line for line in process.stderr)
            yield f"unix:{path}"
        finally:
            process.kill()


def pid_of(guard: Process) -> int:
    """Return the process of the command that was started last, as the log that was read so far says."""
    return int(guard.events("command started")[-1]["pid"])


@contextmanager
def ending(pid: int) -> Iterator[None]:
    """Wait for the end of a process that is no child, after the block (Linux)."""
    fd = os.pidfd_open(pid)
    try:
        yield
        assert select.select([fd], [], [], PATIENCE)[0], "it has not ended"
    finally:
        os.close(fd)


def is_there(pid: int) -> bool:
    """Tell whether a process exists that has not ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def left_in(directory: Path) -> list[Path]:
    """Return what is left of the directories for sockets."""
    return list(directory.glob("deadlined-*"))
