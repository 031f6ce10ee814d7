"""The command on a pseudo-terminal, as a person sees it."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.command import COMMAND, PATIENCE, environment, kill_all

# makes standard input the controlling terminal, so that Ctrl-C is a signal
_CONTROLLED = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

CTRL_C = b"\x03"


class Terminal:
    """A running command, and what its terminal has shown so far: `shown`, with the colours, and `text`, without."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self._fd = fd
        self._data = b""

    @property
    def shown(self) -> str:
        return self._data.decode().replace("\r\n", "\n")

    @property
    def text(self) -> str:
        return _COLOURS.sub("", self.shown)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read until the text contains this, and return the match."""
        limit = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.text, re.MULTILINE)):
            assert self._read(limit), f"it ended without {pattern!r}:\n{self.text}"
        return found

    def press(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def end(self) -> int:
        """Read until it has ended; return the exit code."""
        limit = time.monotonic() + PATIENCE
        while self._read(limit):
            continue
        return self.process.wait(PATIENCE)

    def _read(self, limit: float) -> bool:
        """Read some of what is shown. Return False at the end."""
        assert select.select([self._fd], [], [], limit - time.monotonic())[0], f"nothing more came:\n{self.text}"
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            # Linux reports the end of a terminal as EIO
            return False
        self._data += data
        return bool(data)


@contextmanager
def on_terminal(
    directory: Path, *arguments: str, command: Sequence[str] = COMMAND, **variables: str
) -> Iterator[Terminal]:
    """Run the command on a terminal of its own. Kill it at the end."""
    ours, theirs = os.openpty()
    # what the test's own terminal has said must not count
    plain = dict.fromkeys(("NO_COLOR", "FORCE_COLOR"), "") | {"TERM": "xterm"}
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _CONTROLLED, *command, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=directory,
            env=environment(**(plain | variables)),
            start_new_session=True,
        )
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            kill_all(process)  # type: ignore[arg-type]
            process.wait()
    finally:
        os.close(ours)
