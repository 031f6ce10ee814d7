"""The commands of the load test as processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
