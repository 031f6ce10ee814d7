"""The drain of a serving process: when it must be over."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...http import HttpServer
from ...runtime import Event, current_time
from ..log.logs import Log
from .drain_report import DrainReport


class ProcessDrain:
    """The drain of a server, for its event loop. When it begins, `seconds()` says how long it may take, and
    `start(server, name, seconds)` must begin the drain of the server; there `name` is the signal's, and `seconds` is
    None for a drain without a limit.

    `cut` may be called before `begin`. A worker process is told to drain by a signal, and to end the drain over its
    link. If both have come while the event loop was blocked, trio handles them in any order. A second signal may also
    interrupt the handler of the first.
    """

    def __init__(
        self,
        server: HttpServer,
        log: Log,
        seconds: Callable[[], float],
        start: Callable[[HttpServer, str, float | None], object],
    ) -> None:
        self._server = server
        self._seconds = seconds
        self._start = start
        self._report = DrainReport(server, log)
        self._begun = Event()
        self._cut = Event()
        # when the drain must be over, absolute. It is over now for a server that ends without a drain
        self._ends = current_time()

    def begin(self, name: str) -> None:
        """Begin the drain, because of the signal `name`. It ends at once if `cut` was called before."""
        seconds = self._seconds()
        self._ends = current_time() + seconds
        self._start(self._server, name, None if seconds == math.inf else seconds)
        self._report.begin(self._ends)
        if self._cut.is_set():
            self.cut()
        self._begun.set()

    def cut(self) -> None:
        """End the drain now, or as soon as it begins. A further call does not move the deadline back."""
        self._ends = min(self._ends, current_time())
        self._cut.set()
        self._server.cut()

    def deadline(self) -> float:
        """Return when the drain and what comes after it must be over, absolute seconds. `begin` sets it, and `cut`
        makes it earlier."""
        return self._ends

    async def wait_overdue(self, seconds: float) -> None:
        """Return this many seconds after the drain's deadline; never if it does not begin."""
        await self._begun.wait()
        await self._cut.wait_until(self._ends)
        await Event().wait_until(self._ends + seconds)

    def end(self) -> None:
        """Note that the server has ended. Idempotent."""
        self._report.end()
