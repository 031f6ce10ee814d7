"""Counting what one serving process does, for the admin listener: every figure is read when it is asked for.

Facts      A process may have tens of thousands of connections, and may be asked a hundred times per second.
Answer     One pass over the connections counts them and finds those that are shown, in pieces (`pieces.py`). Only those
           that are shown are described. The answer says how much processor time it took, so that the asker can pause.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...http import ConnectionInfo, HistogramCounts, HttpServer, HttpStatistics, Phase, Reason, Survey
from ...poll import Poller
from ...proxy import Failure, ProxyStatistics
from ..config.kinds import printable
from .picture import Answer, Connection, Counters, Gauges, Histogram, Question, UpstreamCounters, UpstreamGauges
from .pieces import Pieces

_PAGE = os.sysconf("SC_PAGE_SIZE")

# connections that are described without a pause: a millisecond
_DESCRIBED = 200


@dataclass(frozen=True)
class Serving:
    """What is counted: the server, the poller of its event loop, how often the loop was blocked, and what a proxy has
    counted; `proxied` returns None if nothing is proxied."""

    server: HttpServer
    poller: Poller
    stalls: Callable[[], int]
    proxied: Callable[[], ProxyStatistics | None] = lambda: None

    @property
    def available(self) -> bool:
        """False while requests cannot be answered, because the command of a guard does not run."""
        proxied = self.proxied()
        return proxied is None or any(upstream.available for upstream in proxied.upstreams)

    async def answer(self, question: Question, worker: int) -> Answer:
        """Answer as the worker process number `worker`, and let other tasks run meanwhile."""
        work = Pieces(self.server.open_connections)
        survey = self._survey(question)
        while survey.left:
            survey.advance(work.size)
            await work.pause()
        shown = list[Connection]()
        while survey.undescribed:
            shown += [_described(info, worker) for info in survey.describe(_DESCRIBED)]
            await work.pause()
        return self._answer(question, survey, shown, work)

    def last_answer(self, worker: int) -> Answer:
        """Return the counts at the end of the process, without letting other tasks run."""
        question = Question(what="counts")
        work = Pieces(0)
        survey = self._survey(question)
        survey.advance(survey.left)
        return self._answer(question, survey, [], work)

    def _survey(self, question: Question) -> Survey:
        if question.what != "connections":
            return self.server.survey()
        phase = None if question.phase is None else Phase(question.phase)
        return self.server.survey(phase, sort=question.sort, descending=question.descending, limit=question.limit)

    def _answer(self, question: Question, survey: Survey, shown: list[Connection], work: Pieces) -> Answer:
        statistics = self.server.statistics(survey)
        matching = 0
        if question.what == "connections":
            matching = statistics.open if question.phase is None else statistics.phases.get(Phase(question.phase), 0)
        proxied = self.proxied() or ProxyStatistics(upstreams=(), waiting=0, retries=0, overloaded=0)
        return Answer(
            id=question.id,
            counters=self._counters(statistics, proxied),
            gauges=self._gauges(statistics, proxied, work),
            matching=matching,
            connections=shown,
        )

    def _counters(self, found: HttpStatistics, proxied: ProxyStatistics) -> Counters:
        return Counters(
            accepted=found.accepted,
            closed={reason.value: found.reasons.get(reason, 0) for reason in Reason},
            expired={phase.value: found.expired.get(phase, 0) for phase in Phase},
            requests=_by_method(found.answered),
            durations=_histogram(found.durations),
            lateness=_histogram(found.lateness),
            received=found.received,
            sent=found.sent,
            fired=self.poller.timers.statistics().fired,
            resets=self.poller.count_resets(),
            stalls=self.stalls(),
            cpu=time.process_time(),
            upstreams={
                printable(one.address): UpstreamCounters(
                    tries=one.tries,
                    connects=one.connects,
                    failures={failure.value: one.failures.get(failure, 0) for failure in Failure},
                )
                for one in proxied.upstreams
            },
            retries=proxied.retries,
            overloaded=proxied.overloaded,
            refused={} if found.admission is None else {why.value: n for why, n in found.admission.refused.items()},
        )

    def _gauges(self, found: HttpStatistics, proxied: ProxyStatistics, work: Pieces) -> Gauges:
        timers = self.poller.timers
        wakes_in = timers.wake_time() - self.poller.clock.now()
        return Gauges(
            phases={phase.value: found.phases.get(phase, 0) for phase in Phase},
            in_flight=found.in_flight,
            background=found.background,
            armed=len(timers) - timers.zombies,
            zombies=timers.zombies,
            wakes_in=None if wakes_in == math.inf else wakes_in,
            resident=_resident(),
            open_files=_open_files(),
            took=work.spent,
            upstreams={
                printable(one.address): UpstreamGauges(
                    active=one.active, idle=one.idle, up=one.available and not one.ejected
                )
                for one in proxied.upstreams
            },
            waiting=proxied.waiting,
            running=0 if found.admission is None else found.admission.running,
            queued=0 if found.admission is None else found.admission.waiting,
            max_connections=None if self.server.max_connections == math.inf else self.server.max_connections,
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
