"""What trio's loop calls before it waits for events. Interpreted: trio reads the methods of the class."""

from __future__ import annotations

import sys

import trio

from ..forking import end_child


class EndBeforeWait(trio.abc.Instrument):
    """Ends a forked child whose code returns into the event loop."""

    def before_io_wait(self, timeout: float) -> None:
        end_child()


def runs_in_asyncio() -> bool:
    """Return True if trio runs as a guest of asyncio. What an instrument calls then cannot know which of the two loops
    it is called by."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
