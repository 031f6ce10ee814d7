"""A future of asyncio that reports its cancellation at once.

Facts      The cancellation of a task cancels the future that it awaits. The task itself runs in a later step.
Hazard     What comes between these two, for example the time of a timer, would be handed to a task that will not
           receive it.
Answer     The future calls a function when it is cancelled.

This module is interpreted, because a compiled class cannot derive from `asyncio.Future`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Sleep(asyncio.Future[None]):
    """A future that calls `on_cancel()`, unless that is None, when it is cancelled. Its maker must set that."""

    # without a dictionary, which each tick of a ticker would make
    __slots__ = ("on_cancel",)

    on_cancel: Callable[[], object] | None

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled and self.on_cancel is not None:
            self.on_cancel()
        return cancelled
