"""The drain of a serving process: when it must be over."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..http import HttpServer
from ..runtime import current_time
from .drain_report import DrainReport
from .logs import Log


class Drain:
    """The drain of a server, in its event loop. `seconds()` is asked when it begins; then `start` is called with the
    server, the signal's name and the seconds, which are None for a drain without a limit. It begins the server's."""

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
        # absolute. A server that ends without a drain leaves no time for what comes after it
        self._ends = current_time()

    def begin(self, name: str) -> None:
        """Begin the drain, because of this signal."""
        seconds = self._seconds()
        self._ends = current_time() + seconds
        self._start(self._server, name, None if seconds == math.inf else seconds)
        self._report.begin(self._ends)

    def cut(self) -> None:
        """End it now. A further call does not move the deadline back."""
        self._ends = min(self._ends, current_time())
        self._server.cut()

    def deadline(self) -> float:
        """Return when the drain and what comes after it must be over, absolute seconds. `begin` sets it, and `cut`
        makes it earlier."""
        return self._ends

    def end(self) -> None:
        """Note that the server has ended. Idempotent."""
        self._report.end()
