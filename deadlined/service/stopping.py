"""Signals: the first one drains, the second one ends, and a drain always ends.

Facts      A Python signal handler runs in the main thread between two bytecodes, also while an application blocks the
           event loop there.
Hazard     A drain that the event loop conducts never begins if the loop is blocked, and never ends if an application
           ignores its cancellation; the supervisor then kills the process, or waits for ever.
Answer     The handler starts a thread that ends the process a moment after the drain's deadline, whatever happens,
           and only then tells the event loop.
Cost       One sleeping thread during a drain.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..runtime import call_soon

# seconds that the process may take to end by itself after the drain's deadline
MARGIN = 2.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopper:
    """`with Stopper(drain, begin, end):` inside `trio.run`, in the main thread. The first SIGTERM or SIGINT calls
    `begin(signal name)` in the run, the second one `end()`; `drain` plus a margin after the first, the process exits
    with 1 if it is still there.

    Where `end` is None somebody else ends the process: every signal after the first is ignored, and after the `with`
    every one, until the process is gone. A signal that was heard already must cost neither the application its orderly
    end nor the process its exit code.
    """

    def __init__(self, drain: float, begin: Callable[[str], object], end: Callable[[], object] | None) -> None:
        self._drain = drain
        self._begin = begin
        self._end = end
        self._signalled = False
        self._call_soon = call_soon()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stopper:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._end is None else handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._signalled:
            if self._end is not None:
                self._call_soon(self._end)
            return
        self._signalled = True
        if self._drain < math.inf:
            watchdog = threading.Timer(self._drain + MARGIN, _end_process, (self._drain,))
            watchdog.daemon = True
            watchdog.start()
        self._call_soon(self._begin, signal.Signals(number).name)


def _end_process(drain: float) -> None:
    try:
        print(
            f"deadlined: the process did not end within the drain of {drain:g} s; ending it",
            file=sys.stderr,
            flush=True,
        )
    finally:
        # also if stderr is closed or broken
        os._exit(1)
