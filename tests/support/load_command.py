"""The commands of the load test as processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from loadtest.crew import Child
from loadtest.servers import ROOT


@contextmanager
def measuring(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start `loadtest` with these arguments, its stdout and its stderr in one pipe. At the end kill it if it runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtest", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupt_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C come while the first process of a crew is ended, when all has been measured."""
    leave = Child.__exit__

    def interrupted(child: Child, *error: object) -> None:
        monkeypatch.setattr(Child, "__exit__", leave)
        signal.raise_signal(signal.SIGINT)
        leave(child, *error)

    monkeypatch.setattr(Child, "__exit__", interrupted)
