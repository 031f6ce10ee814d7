"""SIGHUP in a process that serves: read the configuration again, drain, or end with the terminal.

Facts      SIGHUP comes when a terminal is closed, and by custom it also tells a server to read its configuration. It
           ends a process that has no handler for it. A shell sends it to its jobs as well, so that it comes twice.
Hazard     A server that only reads its configuration lives on without its terminal, and keeps the port. One that is
           signalled while it starts is ended; a first worker process takes its whole service along. A drain is cut by
           the second signal of a terminal that is closed.
Answer     SIGHUP has a handler before the application is imported, and is held back until then (`terminal.py`). If this
           process was started on a terminal and has lost it, and not under nohup, the first SIGHUP ends it as SIGTERM
           does, unless it ends already. Otherwise it reloads or drains, once the process serves. A process that has a
           supervisor does not check the terminal: the supervisor does.
Cost       One open of /dev/tty per signal.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from ...terminal import START


class Hangup:
    """The handler, from construction on. For the main thread. `before`: the handler that it has replaced.

    `supervised`: another process has started this one, and ends it. Under nohup it then ignores the signal as before.
    """

    def __init__(self, *, supervised: bool = False) -> None:
        self.before: Any = signal.getsignal(signal.SIGHUP)
        self._supervised = supervised
        self._call: Callable[[], object] | None = None
        self._stop: Callable[[], object] = _terminate
        self._pending = False
        # the process was told to end with its terminal
        self._ended = False
        if not supervised or self.before != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._on_signal)

    def follow(self, call: Callable[[], object], stop: Callable[[], object]) -> None:
        """From now on, call `call()` between two bytecodes for each SIGHUP that does not end the process, and call it
        now if one has come before. For the first SIGHUP that ends the process, call `stop()` instead of raising
        SIGTERM."""
        self._call = call
        self._stop = stop
        if self._pending:
            call()

    def leave(self) -> None:
        """Do as before `follow`."""
        self._call = None
        self._stop = _terminate

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if not self._supervised and START.has_lost_terminal():
            if not self._ended:
                self._ended = True
                self._stop()
        elif self._call is None:
            self._pending = True
        else:
            self._call()


def _terminate() -> None:
    signal.raise_signal(signal.SIGTERM)
