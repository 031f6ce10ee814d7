"""What Ctrl-C may interrupt, and what not: frames that trio knows, around compiled code, which has none.

This module is interpreted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from trio.lowlevel import disable_ki_protection, enable_ki_protection

_log = logging.getLogger("deadlined.runtime")


@disable_ki_protection
async def interruptible(awaitable: Awaitable[None]) -> None:
    """Await without protection from Ctrl-C, although the caller is protected."""
    await awaitable


@enable_ki_protection
def call_hook(function: Callable[[], object]) -> None:
    """Call a hook without being interrupted by Ctrl-C, and log an Exception that it raises."""
    try:
        function()
    except Exception:
        _log.exception("the hook of a task that suspends has failed")
