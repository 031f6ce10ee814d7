"""Counting what one serving process does, for the admin listener: every figure is read when it is asked for.

Facts      A process may have ten thousand connections, and may be asked a hundred times per second.
Answer     One pass over the connections counts them; a second one, if it was asked for, orders them, and only those
           that are shown are described. How long it took is part of the answer, so that the asker can pause.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...http import RULES, ConnectionInfo, HistogramCounts, HttpServer, HttpStatistics, Phase, Reason
from ...poll import Poller
from .picture import Answer, Connection, Counters, Gauges, Histogram, Question

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Serving:
    """What is counted: the server, the poller of its event loop, and how often the loop was blocked."""

    server: HttpServer
    poller: Poller
    stalls: Callable[[], int]

    def answer(self, question: Question, worker: int) -> Answer:
        """Answer as the worker process number `worker`."""
        begun = time.thread_time()
        statistics = self.server.statistics()
        matching, shown = 0, list[Connection]()
        if question.what == "connections":
            phase = None if question.phase is None else Phase(question.phase)
            matching = sum(statistics.phases.values()) if phase is None else statistics.phases.get(phase, 0)
            infos = self.server.connections(
                phase, sort=question.sort, descending=question.descending, limit=question.limit
            )
            shown = [_described(info, worker) for info in infos]
        return Answer(
            id=question.id,
            counters=self._counters(statistics),
            gauges=self._gauges(statistics, begun),
            matching=matching,
            connections=shown,
        )

    def _counters(self, found: HttpStatistics) -> Counters:
        return Counters(
            accepted=found.accepted,
            closed={reason.value: found.reasons.get(reason, 0) for reason in Reason},
            expired={phase.value: found.expired.get(phase, 0) for phase in _expiring()},
            requests=_by_method(found.answered),
            durations=_histogram(found.durations),
            lateness=_histogram(found.lateness),
            received=found.received,
            sent=found.sent,
            fired=self.poller.timers.statistics().fired,
            resets=self.poller.count_resets(),
            stalls=self.stalls(),
            cpu=time.process_time(),
        )

    def _gauges(self, found: HttpStatistics, begun: float) -> Gauges:
        timers = self.poller.timers
        wakes_in = timers.wake_time() - self.poller.clock.now()
        return Gauges(
            phases={phase.value: found.phases.get(phase, 0) for phase in Phase},
            background=found.background,
            armed=len(timers) - timers.zombies,
            zombies=timers.zombies,
            wakes_in=None if wakes_in == math.inf else wakes_in,
            resident=_resident(),
            open_files=_open_files(),
            took=time.thread_time() - begun,
        )


def _described(info: ConnectionInfo, worker: int) -> Connection:
    left = None if info.left == math.inf else round(max(info.left, 0.0), 3)
    return Connection(
        worker=worker,
        id=info.id,
        peer=info.peer,
        phase=info.phase.value,
        age=round(info.age, 3),
        left=left,
        requests=info.requests,
    )


def _expiring() -> list[Phase]:
    """Return the phases in which a deadline can pass."""
    return [phase for phase in Phase if any(rule.phase is phase for rule in RULES.values())]


def _by_method(answered: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for (method, status), number in answered.items():
        table.setdefault(method, {})[str(status) if status else "none"] = number
    return table


def _histogram(found: HistogramCounts) -> Histogram:
    return Histogram(found.bounds, found.counts, found.sum)


def _resident() -> int:
    """Return the bytes of memory that the process uses; 0 if the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except OSError:
        return 0


def _open_files() -> int:
    """Return the number of open descriptors; 0 if the system does not tell. Since Linux 6.2 it is the size of the
    directory that lists them, and reading that takes milliseconds for ten thousand."""
    try:
        return Path("/proc/self/fd").stat().st_size or sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return 0
