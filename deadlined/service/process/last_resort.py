"""The end of this process without its event loop, at once or in some seconds, and of what must not outlive it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import NoReturn

# seconds in which a process that is to end may do so by itself: after the deadline of its drain, or a signal
MARGIN = 2.0

# what is called before the process ends at once
_calls: list[Callable[[], object]] = []


def before_exit(call: Callable[[], object]) -> None:
    """Have `exit_now` call `call()`, which must not block or raise, in any thread or in a signal handler."""
    _calls.append(call)


def forget(call: Callable[[], object]) -> None:
    """Undo `before_exit`. Idempotent."""
    if call in _calls:
        _calls.remove(call)


def exit_now(code: int) -> NoReturn:
    """End the process with `code`: no block of Python's is left, no buffer is written."""
    try:
        for call in tuple(_calls):
            call()
    finally:
        os._exit(code)


def end_later(seconds: float, end: Callable[[], object]) -> None:
    """Have the process ended by `end()` in `seconds`: in a thread, or by an alarm of the kernel's if none can be
    started."""
    # a thread refuses to sleep for three centuries
    seconds = min(seconds, threading.TIMEOUT_MAX)
    if not call_in_thread(seconds, end):
        _end_by_alarm(seconds, end)


def call_in_thread(seconds: float, end: Callable[[], object]) -> bool:
    """Call `end()` in `seconds`, in a thread that does not keep the process. Return False if none can be started."""
    try:
        watchdog = threading.Timer(seconds, end)
        watchdog.daemon = True
        watchdog.start()
    except Exception:
        # the process may have no more threads, which may be why it is ended
        return False
    return True


def _end_by_alarm(seconds: float, end: Callable[[], object]) -> None:
    """End the process in `seconds`, without a thread."""
    # The default needs no bytecode to run, but the kernel does not end process 1, the first of a container, by it.
    action = signal.SIG_DFL if os.getpid() != 1 else lambda *_: end()
    signal.signal(signal.SIGALRM, action)
    signal.setitimer(signal.ITIMER_REAL, seconds)
