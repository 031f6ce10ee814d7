"""Server processes, their logs and their use of the machine; limits and tools. Shared by all commands."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self

import psutil  # type: ignore[import-untyped,unused-ignore]

ROOT = Path(__file__).resolve().parent.parent

# seconds; importing a framework takes one or two on a busy machine
START = 30.0
STOP = 15.0
# seconds between two looks if a server listens
_LOOK = 0.01
# bytes of a log that are read at once
BLOCK = 65536

# what a server prints first
_URL = re.compile(r"(?:https?|tcp)://127\.0\.0\.1:(\d+)")

# in the status that Linux shows of a thread
_SWITCHES = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)

Record = dict[str, Any]


class ToolMissingError(Exception):
    """A program that the command needs is not installed."""


def tool(name: str, package: str = "") -> str:
    """Find a program. ToolMissingError names the Debian package, which is `package` or `name`."""
    path = shutil.which(name)
    if path is None:
        raise ToolMissingError(f"{name} is not installed (on Debian: apt-get install {package or name})")
    return path


def told_version(*command: str) -> str:
    """Return the version that a command prints; "unknown" if it prints none."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=START, check=False)
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found[0] if found else "unknown"


def raise_file_limit(wanted: int) -> int:
    """Raise the limit of open descriptors to `wanted`, or as far as the machine allows, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            return wanted
    reached = max(soft, min(wanted, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (reached, hard))
    return reached


def attempts(seconds: float, pause: float) -> Iterator[None]:
    """Yield at once, and again after each pause, until so many seconds have passed."""
    until = monotonic() + seconds
    yield
    while monotonic() < until:
        sleep(pause)
        yield


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Start processes on this core: until the end of the block, children run there with all their threads.

    Does nothing if `core` is None, or if that core or the system call does not exist.
    """
    if core is None or not hasattr(os, "sched_setaffinity") or core not in (before := os.sched_getaffinity(0)):
        yield
        return
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class Usage:
    """The use of the machine by a process with all its threads and children.

    `cpu`: seconds so far. `switches`: voluntary context switches so far, each followed by a wake-up. `resident`: bytes
    now.
    """

    cpu: float
    switches: int
    resident: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """Read it from /proc (Linux). Threads that have ended are not counted."""
        first = psutil.Process(pid)
        family = [first, *first.children(recursive=True)]
        tasks = [task for member in family for task in Path(f"/proc/{member.pid}/task").iterdir()]
        return cls(
            # in nanoseconds; psutil's times are ticks of 10 ms, and its switches those of the first thread
            cpu=sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9,
            switches=sum(int(_SWITCHES.findall((task / "status").read_text())[0]) for task in tasks),
            resident=sum(member.memory_info().rss for member in family),
        )


def wait_or_kill(process: subprocess.Popen[Any], seconds: float) -> None:
    """Wait for the end of a process, and kill it if it takes longer than so many seconds."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Server:
    """A server process whose output is read as it comes.

    `port` is known once it has said where it listens. `records` are its JSON lines in order, `output` its other lines.
    `heeds_logs=False`: what comes after the port is not kept, and reading it costs little; `dropped` says how many
    bytes that were.
    """

    def __init__(self, process: subprocess.Popen[str], heeds_logs: bool = True) -> None:
        self.pid = process.pid
        self.records: list[Record] = []
        self.output: list[str] = []
        self.port = 0
        self.dropped = 0
        self._heeds_logs = heeds_logs
        self._process = process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def url(self) -> str:
        """The server's URL without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def ended(self) -> bool:
        """True after its last line of output."""
        return not self._reader.is_alive()

    def connections(self) -> list[Record]:
        """Return the log records of connections that have ended."""
        return [record for record in list(self.records) if record.get("event") == "connection"]

    def stop(self) -> None:
        """Terminate the process, and kill it if it does not end within STOP."""
        with self._process:
            self._process.terminate()
            wait_or_kill(self._process, STOP)
            # before the pipe is closed
            self._reader.join(STOP)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.records.append(json.loads(line))
            else:
                self.output.append(line)
            if not self.port and (found := _URL.search(line)):
                self.port = int(found[1])
            if self.port and not self._heeds_logs:
                while block := os.read(self._process.stdout.fileno(), BLOCK):
                    self.dropped += len(block)


@contextmanager
def running(
    command: Sequence[str],
    *,
    core: int | None = None,
    environment: Mapping[str, str] | None = None,
    patience: float = START,
    heeds_logs: bool = True,
) -> Iterator[Server]:
    """Start a server, yield it when it listens, and stop it.

    `environment` replaces this process's own; None keeps it. `heeds_logs`: see Server. RuntimeError with the server's
    output if it does not listen within `patience` seconds.
    """
    with on_core(core):
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, encoding="utf-8")  # fmt: skip
    server = Server(process, heeds_logs)
    try:
        for _ in attempts(patience, _LOOK):
            if server.port or server.ended:
                break
        if not server.port:
            raise RuntimeError(f"{' '.join(command)} does not listen:\n{''.join(server.output)}")
        yield server
    finally:
        server.stop()


def deadlined_command(app: str, *flags: str) -> list[str]:
    """Return the command of `deadlined serve` on a free port of the loopback interface."""
    return [sys.executable, "-m", "deadlined", "serve", app, "--host", "127.0.0.1", "--port", "0", *flags]
