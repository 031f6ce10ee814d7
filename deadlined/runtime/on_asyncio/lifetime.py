"""The end of a host of asyncio: when its loop closes its asynchronous generators, as `asyncio.run` does at its end.

This module is interpreted, because compiled code has no asynchronous generators.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable


def at_end_of_loop(shut_down: Callable[[], object]) -> object:
    """Call `shut_down` when the running loop closes its generators. The caller must keep the returned object."""
    lifetime = _lifetime(shut_down)
    # the first step, by which the loop learns of it; it suspends at once
    with contextlib.suppress(StopIteration):
        lifetime.asend(None).send(None)
    return lifetime


async def _lifetime(shut_down: Callable[[], object]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        shut_down()
