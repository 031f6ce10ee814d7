"""SIGHUP in a process that serves alone: read the configuration again, or end with the terminal.

Facts      SIGHUP comes when a terminal is closed, and by custom it also tells a server to read its configuration. It
           ends a process that has no handler for it. When a terminal is closed, /dev/tty cannot be opened any more.
Hazard     A server that only reads its configuration then lives on, without a terminal, and keeps the port. One that is
           told to do so while it starts is ended.
Answer     It is handled from before the application is imported. If this process was started on a terminal and has lost
           it, and not under nohup, SIGHUP ends it as SIGTERM does; else the configuration is read, once it serves.
Cost       One open of /dev/tty per signal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


class Hangup:
    """The handler, from construction on. For the main thread. `before`: the handler that it has replaced."""

    def __init__(self) -> None:
        self.before: Any = signal.getsignal(signal.SIGHUP)
        self._ends_with_terminal = self.before != signal.SIG_IGN and _has_terminal()
        self._call: Callable[[], object] | None = None
        self._pending = False
        signal.signal(signal.SIGHUP, self._on_signal)

    def follow(self, call: Callable[[], object]) -> None:
        """Call `call()` from now on, between two bytecodes, for each SIGHUP that asks for the configuration to be read,
        and now if one has come before."""
        self._call = call
        if self._pending:
            call()

    def leave(self) -> None:
        """Call nothing any more."""
        self._call = None

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._ends_with_terminal and not _has_terminal():
            signal.raise_signal(signal.SIGTERM)
        elif self._call is None:
            self._pending = True
        else:
            self._call()


def _has_terminal() -> bool:
    """Return True if this process has a controlling terminal that is open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
