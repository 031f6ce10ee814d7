"""Where timers live: on a core of their own, beside a busy loop, and within a CPU quota as in a container.

Facts      A cgroup with a quota of 50 ms in 100 ms (Kubernetes: `cpu: 500m`) runs until its processes have used up the
           50 ms, all together; then nothing in it runs until the next period begins.
Hazard     A program that mostly sleeps never uses its quota up, and measures nothing.
Answer     A busy loop shares the group, as a worker thread or a neighbour in the same container would.
Cost       Groups need root and a controller (cgroup v2's cpu.max, or v1's cpu.cfs_quota_us). Elsewhere the process is
           stopped by signal for the same part of each period, which is harder: it is stopped whether it has used
           anything or not. The name of the situation says which it was.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from ..bench.lateness import busy
from ..bench.processes import SERVER_CORE

# microseconds; the period is the kernel's default and Kubernetes'
PERIOD: Final = 100_000
QUOTA: Final = 50_000

# what a running child is put into, by its id, until the context ends
Pressure = Callable[[int], AbstractContextManager[None]]


@dataclass(frozen=True)
class Situation:
    """`name` is for people, `short` for programs."""

    short: str
    name: str
    pressure: Pressure


def situations() -> list[Situation]:
    """What can be had here."""
    return [
        Situation("idle", "idle core", _nothing),
        Situation("busy", "beside a busy loop", _busy),
        _quota(),
    ]


@contextmanager
def _nothing(pid: int) -> Iterator[None]:
    yield


@contextmanager
def _busy(pid: int) -> Iterator[None]:
    with busy(SERVER_CORE):
        yield


def _quota() -> Situation:
    share = f"{100 * QUOTA // PERIOD} %"
    for version, parent in (("v2", own_group("")), ("v1", own_group("cpu"))):
        if parent is not None and _limits(parent):
            return Situation("quota", f"CPU quota {share}, busy (cgroup {version})", partial(_group, parent))
    return Situation("quota", f"stopped {share} of the time (SIGSTOP, no cgroup)", stopped)


def own_group(controller: str, mounts: str | None = None, groups: str | None = None) -> Path | None:
    """The directory of this process's own group: of a v1 controller, or with "" of v2. None if it is not mounted."""
    try:
        mounts = mounts if mounts is not None else Path("/proc/mounts").read_text(encoding="utf-8")
        groups = groups if groups is not None else Path("/proc/self/cgroup").read_text(encoding="utf-8")
    except OSError:
        return None
    for line in mounts.splitlines():
        _, where, kind, options = line.split()[:4]
        if (kind == "cgroup2" and not controller) or (kind == "cgroup" and controller in options.split(",")):
            for group in groups.splitlines():
                _, names, path = group.split(":", 2)
                if controller in names.split(","):
                    return Path(where) / path.lstrip("/")
    return None


def _limits(parent: Path) -> bool:
    """Whether a group below `parent` may have a quota."""
    try:
        with _made(parent):
            return True
    except OSError:
        return False


@contextmanager
def _made(parent: Path) -> Iterator[Path]:
    """A group with our quota, for a while. OSError if it cannot be made, or has no quota to set."""
    group = parent / f"deadlined-{os.getpid()}"
    group.mkdir()
    try:
        # opened for update: what is not there must not be made, nor seem to be
        if (group / "cpu.max").exists():
            _write(group / "cpu.max", f"{QUOTA} {PERIOD}")
        else:
            _write(group / "cpu.cfs_period_us", str(PERIOD))
            _write(group / "cpu.cfs_quota_us", str(QUOTA))
        yield group
    finally:
        group.rmdir()


def _write(path: Path, text: str) -> None:
    with path.open("r+", encoding="utf-8") as file:
        file.write(text)


@contextmanager
def _group(parent: Path, pid: int) -> Iterator[None]:
    """The child in a group of its own, with a busy loop."""
    with ExitStack() as stack:
        group = stack.enter_context(_made(parent))
        stack.callback(_leave, parent, pid)
        # it ends before the group does
        loop = stack.enter_context(busy(SERVER_CORE))
        stack.callback(_leave, parent, loop.pid)
        for member in (pid, loop.pid):
            _write(group / "cgroup.procs", str(member))
        yield


def _leave(parent: Path, pid: int) -> None:
    """Back to where it came from: a group with members cannot be removed."""
    # a child that has ended has left already
    with suppress(OSError):
        _write(parent / "cgroup.procs", str(pid))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The child is stopped in each period, for what the quota leaves of it."""
    over = threading.Event()

    def cycle() -> None:
        # a child that has ended meanwhile is not stopped any more
        with suppress(ProcessLookupError):
            while not over.wait(QUOTA / 1e6):
                os.kill(pid, signal.SIGSTOP)
                over.wait((PERIOD - QUOTA) / 1e6)
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=cycle)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
