"""What Ctrl-C may interrupt, and what not: frames that trio knows, around code that may be compiled and then has none.

This module is interpreted.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from trio.lowlevel import disable_ki_protection, enable_ki_protection

_log = logging.getLogger("deadlined.runtime")


@disable_ki_protection
async def interruptible(awaitable: Awaitable[None]) -> None:
    """Await without protection from Ctrl-C, although the caller is protected."""
    await awaitable


@enable_ki_protection
async def uninterrupted(function: Callable[..., Awaitable[object]], *args: Any) -> None:
    """Await `function(*args)`, protected from Ctrl-C on trio. On asyncio, where the first Ctrl-C cancels the main task,
    it is awaited as ever."""
    await function(*args)


@enable_ki_protection
def call_hook(function: Callable[[], object]) -> None:
    """Call a hook without being interrupted by Ctrl-C, and log an Exception that it raises."""
    try:
        function()
    except Exception:
        _log.exception("the hook of a task that suspends has failed")


@enable_ki_protection
def interrupt_main_task() -> bool:
    """Have trio raise KeyboardInterrupt in the main task of its run, as for Ctrl-C that has hit a protected frame.
    Return False if trio does not handle Ctrl-C in this thread."""
    handler = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or getattr(handler, "__module__", None) != "trio._core._ki":
        return False
    signal.raise_signal(signal.SIGINT)
    return True
