"""Run a task with a hook before each of its suspensions (`suspension.py`).

This module is interpreted: around a compiled coroutine trio would put a frame of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from trio.lowlevel import disable_ki_protection

from .suspension import SuspendHook


async def with_suspend_hook(task: Coroutine[Any, Any, None], before_suspend: Callable[[], object]) -> None:
    """Run the coroutine `task` and call `before_suspend()` before each of its suspensions; see `SuspendHook`."""
    await run_hooked(SuspendHook(task, before_suspend))


@disable_ki_protection
async def run_hooked(hook: SuspendHook) -> None:
    """Await `hook`."""
    try:
        await hook
    finally:
        # Ctrl-C may have come before its first step
        hook.close()
