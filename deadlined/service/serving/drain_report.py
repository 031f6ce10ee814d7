"""What a drain waits for, logged once a second."""

from __future__ import annotations

import math

from ...http import HttpServer
from ...runtime import current_time
from ...timing import Timer, after_func
from ..log.logs import Log

# seconds between two lines
PERIOD = 1.0

# paths of requests in a line
_MOST_PATHS = 5


class DrainReport:
    """Logs what is left of a drain, from `begin` to `end`, in the server's event loop."""

    def __init__(self, server: HttpServer, log: Log) -> None:
        self._server = server
        self._log = log
        self._ends = math.inf
        self._timer: Timer | None = None

    def begin(self, ends: float) -> None:
        """Begin to report, every PERIOD, a drain whose deadline is `ends`."""
        self._ends = ends
        self._timer = after_func(PERIOD, self._report)

    def end(self) -> None:
        """Report no more. Idempotent."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _report(self) -> None:
        if self._timer is None:
            return
        self._timer = after_func(PERIOD, self._report)
        now = self._server.statistics()
        if not now.open and not now.background:
            return
        left = None if self._ends == math.inf else round(max(self._ends - current_time(), 0.0), 3)
        phases = {str(phase): number for phase, number in now.phases.items()}
        paths = self._server.paths(_MOST_PATHS)
        self._log("still draining", open=now.open, background=now.background, phases=phases, paths=paths, left=left)
