"""What the admin listener knows of a service: data that processes send each other, and sums of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from ..config.rereading import Reloaded

# of a service, and of one process of it
Status = Literal["starting", "ready", "draining"]
State = Literal["starting", "serving", "waiting", "draining"]
SortKey = Literal["id", "age", "left", "requests"]

# the most connections that one answer describes
MOST_SHOWN = 1000


class Histogram(msgspec.Struct, frozen=True):
    """`counts[i]` observations were at most `bounds[i]`, the last of `counts` above all; `sum` is their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class UpstreamCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What has happened at one upstream of a proxy: requests that were sent to it, connections that were made, and
    failures by their names."""

    tries: int
    connects: int
    failures: dict[str, int]


class UpstreamGauges(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream now: its requests and tunnels, its idle connections, and whether it gets requests."""

    active: int
    idle: int
    up: bool


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of one or more processes since their start: none ever gets smaller. `cpu` is in seconds. `upstreams`: by
    their addresses, of a proxy; `retries` and `overloaded`: requests that it has sent once more, and refused.
    `refused`: requests that got no turn, by why; empty unless the number of running ones is limited."""

    accepted: int
    closed: dict[str, int]
    expired: dict[str, int]
    requests: dict[str, dict[str, int]]
    durations: Histogram
    lateness: Histogram
    received: int
    sent: int
    fired: int
    resets: int
    stalls: int
    cpu: float
    upstreams: dict[str, UpstreamCounters] = {}
    retries: int = 0
    overloaded: int = 0
    refused: dict[str, int] = {}


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a process now. `in_flight`: requests after their heads. `wakes_in`: seconds until the next timer,
    None if there is none. `resident`: bytes. `took`: seconds of processor time for counting all this. `upstreams`: by
    their addresses, of a proxy; `waiting`: requests that wait for one. `running`, `queued`: requests that are handled
    and that wait for their turn, if their number is limited. `max_connections`: connections that may be open, None
    without a limit."""

    phases: dict[str, int]
    in_flight: int
    background: int
    armed: int
    zombies: int
    wakes_in: float | None
    resident: int
    open_files: int
    took: float
    upstreams: dict[str, UpstreamGauges] = {}
    waiting: int = 0
    running: int = 0
    queued: int = 0
    max_connections: float | None = None


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """One open connection. `age`, and `left` until its deadline (None if it has none), in seconds."""

    worker: int
    id: int
    peer: str
    phase: str
    age: float
    left: float | None
    requests: int


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a service. `connections` asks for at most `limit` connections, those in `phase` (None: all), the
    first in the order of `sort`, or the last ones if `descending`. `id` tells the questions of one asker apart."""

    what: Literal["status", "counts", "connections", "drain", "reload"]
    id: int = 0
    phase: str | None = None
    sort: SortKey = "id"
    descending: bool = False
    limit: int = 100


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one process answers. `matching`: how many connections are in the phase that was asked for, of which
    `connections` shows some."""

    id: int
    counters: Counters
    gauges: Gauges
    matching: int = 0
    connections: list[Connection] = []


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a service. `up`: it has answered in time; otherwise `answer` is its last one, None if there is
    none. `state`: what it does, as far as is known; `waiting` is for the command of `deadlined run`. `silent`: it has
    not answered its supervisor for a while."""

    worker: int
    pid: int
    up: bool
    state: State
    silent: bool = False
    answer: Answer | None = None

    @property
    def ready(self) -> bool:
        """True if it accepts connections, and can answer their requests."""
        return self.state == "serving"


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A service: its status, its processes, how many of them there should be, and the totals of those that are gone.
    `reloaded`: what the question `reload` has done."""

    id: int
    status: Status
    wanted: int
    restarts: int
    workers: list[Worker]
    retired: Counters | None = None
    reloaded: Reloaded | None = None

    @property
    def ready(self) -> bool:
        """True if a process serves, between the moment at which all did for the first time and the drain: it accepts
        for those that are replaced, and a service that is taken out of its rotation because of them serves nobody."""
        return self.status == "ready" and self.serving > 0

    @property
    def serving(self) -> int:
        """How many processes serve and answer."""
        return sum(worker.ready and not worker.silent for worker in self.workers)

    @property
    def all_silent(self) -> bool:
        """True if there are processes that serve, and none of them answers."""
        serving = [worker for worker in self.workers if worker.ready]
        return bool(serving) and all(worker.silent for worker in serving)

    def totals(self) -> Counters | None:
        """Sum the counters of all processes that ever served; None if none has answered yet."""
        return add(self.retired, *(worker.answer.counters for worker in self.workers if worker.answer is not None))


def add(*counters: Counters | None) -> Counters | None:
    """Return the sum; None if there is nothing to sum."""
    found = [one for one in counters if one is not None]
    if not found:
        return None
    return Counters(
        accepted=sum(one.accepted for one in found),
        closed=sums(one.closed for one in found),
        expired=sums(one.expired for one in found),
        requests=_tables(one.requests for one in found),
        durations=_histograms([one.durations for one in found]),
        lateness=_histograms([one.lateness for one in found]),
        received=sum(one.received for one in found),
        sent=sum(one.sent for one in found),
        fired=sum(one.fired for one in found),
        resets=sum(one.resets for one in found),
        stalls=sum(one.stalls for one in found),
        cpu=sum(one.cpu for one in found),
        upstreams=_upstreams([one.upstreams for one in found]),
        retries=sum(one.retries for one in found),
        overloaded=sum(one.overloaded for one in found),
        refused=sums(one.refused for one in found),
    )


def sums(tables: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add the values of each key."""
    total: Counter[str] = Counter()
    for table in tables:
        total.update(table)
    return dict(total)


def _tables(tables: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    total: dict[str, Counter[str]] = {}
    for table in tables:
        for key, row in table.items():
            total.setdefault(key, Counter()).update(row)
    return {key: dict(row) for key, row in total.items()}


def _upstreams(tables: list[dict[str, UpstreamCounters]]) -> dict[str, UpstreamCounters]:
    total: dict[str, UpstreamCounters] = {}
    for address in dict.fromkeys(address for table in tables for address in table):
        same = [table[address] for table in tables if address in table]
        total[address] = UpstreamCounters(
            tries=sum(one.tries for one in same),
            connects=sum(one.connects for one in same),
            failures=sums(one.failures for one in same),
        )
    return total


def _histograms(histograms: list[Histogram]) -> Histogram:
    """Add histograms, which have the same bounds: all processes of a service run the same code."""
    counts = tuple(map(sum, zip(*(one.counts for one in histograms), strict=True)))
    return Histogram(histograms[0].bounds, counts, sum(one.sum for one in histograms))
