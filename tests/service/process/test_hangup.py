"""SIGHUP from the first moment of a process on, by itself, to all of a service, and with its terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import COMMAND, PATIENCE, Process, launched, wait_until_starting

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")

# it serves once there is a file, and says what its children find blocked
HESITANT = """
import pathlib, subprocess, sys, time
print("starting", file=sys.stderr, flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.01)
masks = subprocess.run(["grep", "SigBlk", "/proc/self/status"], capture_output=True, text=True, check=True)
pathlib.Path("masks").write_text(masks.stdout)

async def app(scope, receive, send):
    raise NotImplementedError
"""

# how the command is started: as a module, and by its script
SCRIPT = [sys.executable, "-c", "import sys; from deadlined.__main__ import run; sys.exit(run())"]
ENTRIES = {"module": COMMAND, "script": SCRIPT}

# makes the terminal of the descriptor the controlling one, or lets SIGHUP be pending already, and then runs the rest
ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[2], sys.argv[2:])"
)
HUNG_UP = (
    "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP]);"
    "os.kill(os.getpid(), signal.SIGHUP); os.execv(sys.argv[2], sys.argv[2:])"
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "hesitant.py").write_text(HESITANT)
    (tmp_path / "shop.toml").write_text("idle = '3600s'\n")
    return tmp_path


@contextmanager
def starting(
    directory: Path, *arguments: str, entry: str = "module", before: str = "", terminal: int = -1
) -> Iterator[subprocess.Popen[str]]:
    """Start the command, in a session of its own, by way of a program `before` it."""
    given = ("serve", "hesitant:app", "--port", "0", "--config", "shop.toml", *arguments)
    command = [*([sys.executable, "-c", before, str(terminal)] if before else []), *ENTRIES[entry]]
    inherited = [terminal] if terminal >= 0 else []
    with launched(*given, cwd=directory, command=command, pass_fds=inherited) as running:
        yield running


def wait_until_held(running: subprocess.Popen[str]) -> None:
    """Wait until SIGHUP waits for a handler: the command has just begun to load."""
    limit = time.monotonic() + PATIENCE
    while not blocked(Path(f"/proc/{running.pid}/status").read_text()):
        assert running.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.0005)


def blocked(status: str) -> bool:
    """Tell whether SIGHUP is among the signals that are blocked."""
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigBlk"))
    return bool(int(mask, 16) >> (signal.SIGHUP - 1) & 1)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_one_that_comes_while_the_command_is_loaded_is_done_when_it_serves(
    directory: Path, entry: str, workers: str
) -> None:
    with starting(directory, "--workers", workers, entry=entry) as running:
        wait_until_held(running)
        for _ in range(3):
            os.killpg(running.pid, signal.SIGHUP)
        (directory / "shop.toml").write_text("idle = '3s'\n")
        (directory / "go").touch()
        process = Process(running)
        told = process.events("reloaded") or [process.wait_for("reloaded")]
        assert told[0]["by"] == "SIGHUP"
        # what the application starts must not be deaf to it
        assert not blocked((directory / "masks").read_text())
        process.signal()
        assert process.end()[0] == 0


def test_one_that_was_pending_before_python_began_is_done_when_it_serves(directory: Path) -> None:
    (directory / "go").touch()
    with starting(directory, before=HUNG_UP) as running:
        process = Process(running)
        assert (process.events("reloaded") or [process.wait_for("reloaded")])[0]["by"] == "SIGHUP"
        process.signal(signal.SIGHUP)
        process.wait_for("reloaded")
        process.signal()
        assert process.end()[0] == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_one_to_all_processes_while_the_application_is_imported_ends_none(directory: Path, workers: str) -> None:
    with starting(directory, "--workers", workers) as running:
        wait_until_starting(running)
        for _ in range(3):
            os.killpg(running.pid, signal.SIGHUP)
        (directory / "go").touch()
        process = Process(running)
        assert process.events("reloaded") or process.wait_for("reloaded")
        if workers == "2":
            assert process.events("workers replaced") or process.wait_for("workers replaced")
        process.signal()
        assert process.end()[0] == 0
        assert [line["event"] for line in process.lines if line["level"] in ("warning", "error")] == []


@pytest.mark.parametrize("arguments", [("--workers", "1"), ("--workers", "2"), ("--reload",)], ids=" ".join)
@pytest.mark.parametrize("when", ["while it is loaded", "while the application is imported", "while it serves"])
def test_a_service_ends_with_its_terminal(directory: Path, arguments: tuple[str, ...], when: str) -> None:
    ours, theirs = pty.openpty()
    with starting(directory, *arguments, before=ON_TERMINAL, terminal=theirs) as running:
        os.close(theirs)
        wait_until_held(running)
        if when != "while it is loaded":
            wait_until_starting(running)
        if when == "while it serves":
            (directory / "go").touch()
            Process(running)
        os.close(ours)
        assert running.wait(PATIENCE) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_outlives_its_terminal_under_nohup(directory: Path, workers: str) -> None:
    ours, theirs = pty.openpty()
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN);" + ON_TERMINAL
    (directory / "go").touch()
    with starting(directory, "--workers", workers, before=ignoring, terminal=theirs) as running:
        os.close(theirs)
        process = Process(running)
        os.close(ours)
        process.signal(signal.SIGHUP)
        process.wait_for("reloaded")
        process.signal()
        assert process.end()[0] == 0
