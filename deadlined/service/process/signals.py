"""Signals for a process that waits in a selector: a handler that notes them, and a byte that wakes the selector. Also:
which signals stop a process, which of them cut its drain, and how a process that ends ignores them."""

from __future__ import annotations

import math
import os
import selectors
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType
from typing import Any

from ...terminal import START, may_not_write

# the signals that ask a process to stop in any case; SIGHUP may also ask it to read its configuration (`hangup.py`)
ALWAYS_STOP = (signal.SIGTERM, signal.SIGINT)

# the signals by which people, service managers and terminals end a process
STOPS = (*ALWAYS_STOP, signal.SIGHUP)

# Signals that come within so many seconds of the first one belong to the same stop. `timeout` signals its command and
# then its group, systemd what ExecStop has signalled; foreman, honcho and npm signal what has had the Ctrl-C of the
# terminal. All do so within milliseconds. A person who presses Ctrl-C again has waited longer
SAME_STOP = 0.1

# why a process gets a SIGKILL that none of its own service has sent
OUT_OF_MEMORY = "the memory of the machine or the container may be too small"

# several of them say no more than one
_ALIKE = (signal.SIGHUP, signal.SIGCHLD)

# more than the pipe holds
_BYTES = 64 * 1024


class StopSignals:
    """The signals that stop this process: the first one begins the drain, and a later one cuts it, unless it is of the
    same stop. When a signal was sent is unknown to a process that was busy, so what counts is when it is noticed."""

    def __init__(self) -> None:
        self._first = math.inf

    def note(self, now: float) -> bool:
        """Note a signal that is noticed at `now`. Return True if it means to cut."""
        self._first = min(self._first, now)
        return now - self._first >= SAME_STOP


class SignalPipe:
    """The signals that wake a selector, for the main thread. `handle` installs them, `release` gives the handlers from
    before back. The selector's data is None.

    The handler notes them: Python drops the byte of a signal if the pipe is full of those of others, for example of
    SIGHUP, sent in a loop. A SIGTTOU of the terminal's stops the process, as it stops all others of its job: Python
    would repeat the write that it forbids for ever.
    """

    def __init__(self, signals: Iterable[signal.Signals], selector: selectors.BaseSelector) -> None:
        self._signals = tuple(signals)
        self._selector = selector
        self._before: dict[signal.Signals, Any] = {}
        # what has come since the last `read`
        self._noted: list[signal.Signals] = []
        reader, self._writer = socket.socketpair()
        self.reader: socket.socket = reader
        for end in (self.reader, self._writer):
            end.setblocking(False)

    def handle(self) -> None:
        """Receive the signals from now on, and a SIGHUP that was held back."""
        self._selector.register(self.reader, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in self._signals:
            self._before[number] = signal.signal(number, self._note)
        START.release()

    def ignore_stops(self) -> None:
        """Ignore the signals that end a process from now on; `release` leaves them so."""
        for number in STOPS:
            self._before.pop(number, None)
        ignore_stops()

    def read(self) -> list[signal.Signals]:
        """Return the signals that have come; several SIGHUP, or SIGCHLD, as one. Never blocks."""
        with suppress(BlockingIOError):
            self.reader.recv(_BYTES)
        noted, self._noted = self._noted, []
        return noted

    def release(self) -> None:
        """Give back the handlers from before, and close the pipe. Also in a forked child, which shares the selector's
        event queue and must not change it. Idempotent."""
        if self._before:
            signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        self.reader.close()
        self._writer.close()

    def _note(self, number: int, _: FrameType | None) -> None:
        found = signal.Signals(number)
        if found == signal.SIGTTOU and may_not_write():
            _stop_until_continued(found)
        elif found not in _ALIKE or found not in self._noted:
            self._noted.append(found)

    def block(self) -> Any:
        """Block the signals in this thread, and return the mask from before."""
        return signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)


def _stop_until_continued(number: signal.Signals) -> None:
    """Do what the signal does to a process without a handler."""
    handler = signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.signal(number, handler)


def ignore_stops() -> None:
    """Ignore the signals that end a process, because this one ends, with an exit code that they must not change."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


def signal_name(number: int) -> str:
    """Return the name of a signal, its number if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def ending_of(code: int, *, ended_here: bool) -> dict[str, object]:
    """Return the fields of the log that say how a process has ended. `code`: its exit code, or below 0 the number of
    the signal that has ended it. `ended_here`: this process may have sent that signal."""
    if code >= 0:
        return {"code": code}
    if code == -signal.SIGKILL and not ended_here:
        return {"signal": "SIGKILL", "hint": OUT_OF_MEMORY}
    return {"signal": signal_name(-code)}
