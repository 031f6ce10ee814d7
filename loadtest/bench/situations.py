"""The situations of timers: an idle core, a core with a busy loop, and a CPU quota as in a container.

Facts      A cgroup with a quota of 50 ms in 100 ms (Kubernetes: `cpu: 500m`) runs until its processes have used 50 ms
           together; then nothing in it runs until the next period.
Hazard     A program that mostly sleeps never uses up its quota, and the quota has no effect.
Answer     A busy loop shares the group, like a worker thread or a neighbour in the same container.
Cost       Groups need root and a controller (cgroup v2's cpu.max, or v1's cpu.cfs_quota_us). Without them the process
           is stopped by signals for the same part of each period, which is stricter: it is stopped even if it has used
           no time. The name of the situation says which method was used.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from ..servers import pin
from .processes import SERVER_CORE, Pressure

# microseconds; the period is the kernel's default and Kubernetes'
PERIOD: Final = 100_000
QUOTA: Final = 50_000


@contextmanager
def idle_core(pid: int) -> Iterator[None]:
    """Disturb nothing."""
    yield


@contextmanager
def busy_core(pid: int) -> Iterator[None]:
    """Run a busy loop on the child's core."""
    with busy(SERVER_CORE):
        yield


@contextmanager
def busy(core: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a busy loop on this core."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            pin(process.pid, core)
            yield process
        finally:
            process.kill()


def quota() -> tuple[str, Pressure]:
    """Return the quota that is possible on this machine, with its name."""
    share = f"{100 * QUOTA // PERIOD} %"
    for version, parent in (("v2", own_group("")), ("v1", own_group("cpu"))):
        if parent is not None and _limits(parent):
            return f"CPU quota {share}, busy (cgroup {version})", partial(_group, parent)
    return f"stopped {share} of the time (SIGSTOP, no cgroup)", stopped


def own_group(controller: str, mounts: str | None = None, groups: str | None = None) -> Path | None:
    """Return the directory of this process's group of a v1 controller, or of v2 if `controller` is "".

    None if it is not mounted. `mounts` and `groups` replace the files in /proc in tests.
    """
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
    """True if a group below `parent` can have a quota."""
    try:
        with _made(parent):
            return True
    except OSError:
        return False


@contextmanager
def _made(parent: Path) -> Iterator[Path]:
    """Make a group with the quota, and remove it at the end. OSError if it cannot be made or has no quota."""
    group = parent / f"deadlined-{os.getpid()}"
    group.mkdir()
    try:
        # opened for update, so that a missing file is an error
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
    """Put the child and a busy loop into a group of their own."""
    with ExitStack() as stack:
        group = stack.enter_context(_made(parent))
        stack.callback(_leave, parent, pid)
        # the loop ends before the group is removed
        loop = stack.enter_context(busy(SERVER_CORE))
        stack.callback(_leave, parent, loop.pid)
        for member in (pid, loop.pid):
            _write(group / "cgroup.procs", str(member))
        yield


def _leave(parent: Path, pid: int) -> None:
    """Move a process back to the parent group, because a group with members cannot be removed."""
    # a child that has ended is in no group
    with suppress(OSError):
        _write(parent / "cgroup.procs", str(pid))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop the child in each period for the part that is beyond the quota."""
    ended = threading.Event()

    def cycle() -> None:
        # the child may have ended
        with suppress(ProcessLookupError):
            while not ended.wait(QUOTA / 1e6):
                os.kill(pid, signal.SIGSTOP)
                ended.wait((PERIOD - QUOTA) / 1e6)
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=cycle)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
