"""What trio's loop calls before it waits for events. Interpreted: trio reads the methods of the class."""

from __future__ import annotations

import trio

from ..forking import end_child


class EndBeforeWait(trio.abc.Instrument):
    """Ends a forked child whose code returns into the event loop."""

    def before_io_wait(self, timeout: float) -> None:
        end_child()
