"""A TimerThread that must leave no thread behind, and a bucket without any thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deadlined.threads import TimerHandle, TimerThread
from deadlined.threads.bucket import Bucket

ROOT = Path(__file__).resolve().parents[2]
HOUR = 3600.0

# seconds; for what must happen, and never waited for in full
PATIENCE = 30.0


def new_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    """Return the threads started since then. A count of all threads would also fall when another test's ends."""
    return [thread for thread in threading.enumerate() if thread not in before]


@contextmanager
def timer_thread(buckets: int = 1) -> Iterator[TimerThread]:
    """Give a TimerThread, close it at the end, and check that its threads have ended."""
    before = set(threading.enumerate())
    with TimerThread(buckets) as timers:
        yield timers
    assert new_threads(before) == [], "a thread outlives its TimerThread"


def wait(event: threading.Event) -> None:
    """Wait for an event that must come."""
    assert event.wait(PATIENCE), "it does not happen"


def done_calling(timers: TimerThread) -> None:
    """Wait until a call that is due now has been made, and so every call that was due before."""
    called = threading.Event()
    timers.after_func(0.0, called.set)
    wait(called)


def run_threads(*works: Callable[[], object]) -> None:
    """Run each in a thread of its own, all at once; raise the first error of any."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        try:
            barrier.wait(PATIENCE)
            work()
        except BaseException as error:  # kept for the caller, which raises it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@contextmanager
def blocked(timers: TimerThread) -> Iterator[None]:
    """Keep the TimerThread's thread inside a function until the block ends."""
    entered, leave = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        wait(leave)

    timers.after_func(0.0, block)
    wait(entered)
    try:
        yield
    finally:
        leave.set()


class Plan:
    """A bucket in virtual time: no thread, no clock. `calls` has the names of the handles that were called."""

    def __init__(self) -> None:
        self.bucket = Bucket("heap4")
        self.calls: list[str] = []

    def handle(self, name: str) -> TimerHandle:
        """Return an idle handle that appends its name to `calls`."""
        return TimerHandle(self.bucket, self.calls.append, (name,))

    def armed(self, name: str, when: float, period: float = 0.0) -> TimerHandle:
        handle = self.handle(name)
        assert not self.bucket.arm(handle, when, period)
        return handle

    def call_next(self, now: float) -> bool:
        """Claim one handle and call it, as the thread does. Return False if none is due."""
        handle = self.bucket.claim_due(now)
        if handle is not None:
            handle._fn(*handle._args)
        return handle is not None

    def called_at(self, now: float) -> list[str]:
        """Return the names of the handles called at `now`, in order."""
        self.calls.clear()
        while self.call_next(now):
            pass
        return list(self.calls)


def python(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, to its end."""
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-W", "error", *options, "-c", program]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
