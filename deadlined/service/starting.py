"""A stop while the application starts: it is a stop like any other, and nothing was cut.

Facts      Before a process serves, SIGTERM ends it by the signal, and Ctrl-C raises KeyboardInterrupt wherever the main
           thread is. A service manager or a shell that stops a service looks at its exit code.
Hazard     A service that is stopped while it starts counts as one that has failed, and is started again. What the
           application has begun to start is not undone.
Answer     Until it serves (`stopping.py`), SIGTERM does what Ctrl-C does: the application's own `finally` and `async
           with` blocks run, and the process exits with 0. A second SIGTERM, or MARGIN seconds, end it at once, with 0
           as well. A process that has a supervisor is signalled by that and by the service manager, so a second SIGTERM
           does nothing there.
Cost       A start that is busy in C code, an import for example, notices the signal when that returns.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from .children import children_get

# seconds after the signal in which the process may end by itself
MARGIN = 2.0


class Starting:
    """The handler of SIGTERM, from construction on, until another one takes its place. For the main thread.

    `before`: the handler that it has replaced, which children of the application get, beside `hangup`, that of SIGHUP.
    `supervised`: another process has started this one, and ends it. `signal`: the name of the signal that has ended the
    start, if one has. `has_served`: the process serves, or has served.
    """

    def __init__(
        self, hangup: Any = None, *, supervised: bool = False, end: Callable[[int], object] = os._exit
    ) -> None:
        self.before: Any = signal.getsignal(signal.SIGTERM)
        self.signal: str = signal.SIGINT.name
        self.has_served = False
        self._supervised = supervised
        self._end = end
        others = {} if hangup is None else {signal.SIGHUP: hangup}
        children_get({signal.SIGTERM: self.before, **others})
        signal.signal(signal.SIGTERM, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """End the start as Ctrl-C does."""
        if isinstance(sys.exc_info()[1], KeyboardInterrupt):
            # it is ending: a supervisor signals its processes after the terminal has done so
            return
        if self.signal == signal.SIGTERM.name:
            if not self._supervised:
                self._end(0)
            return
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):
            # a shell starts its background jobs with SIGINT ignored
            self._end(0)
        self.signal = signal.SIGTERM.name
        try:
            watchdog = threading.Timer(MARGIN, self._end, (0,))
            watchdog.daemon = True
            watchdog.start()
        except Exception:
            # the process may have no more threads
            self._end(0)
        interrupt(signal.SIGINT, frame)  # type: ignore[operator, misc]

    def ignore_signals(self) -> None:
        """Ignore SIGTERM and SIGINT from now on, because the process ends."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def replaced_by(handler: Any) -> Any:
    """Return what handled a signal before `handler`, if that is a `Starting`, else `handler`."""
    return handler.before if isinstance(handler, Starting) else handler
