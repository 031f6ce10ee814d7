"""Run a task with a hook before each of its suspensions (`suspension.py`).

This module is interpreted: around a compiled coroutine trio would put a frame of its own.
"""

from __future__ import annotations

from trio.lowlevel import disable_ki_protection

from .suspension import SuspendHook


@disable_ki_protection
async def run_hooked(hook: SuspendHook) -> None:
    """Await `hook`."""
    try:
        await hook
    finally:
        # Ctrl-C may have come before its first step
        hook.close()
