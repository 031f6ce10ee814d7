"""What the connections of a server count: requests, how long they took, deadlines that passed, and bytes.

Facts      Every request is counted, and few ask for the counts.
Hazard     An object of a metrics library costs some microseconds per request. A method that a client makes up is a new
           time series with every request.
Answer     A request is two additions to lists of integers, in compiled code. A method that HTTP does not define is
           counted as OTHER, and so is a request that was refused before its method was known.
Cost       8 KiB for each method that occurs, at most ten of them. docs/metrics.md has the instructions per request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..value import Value
from .admission import AdmissionStatistics
from .state import Phase, Reason

# RFC 9110, section 9, and RFC 5789
METHODS: Final = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
OTHER: Final = "other"

# seconds: what people wait for, from half a millisecond to a minute
DURATIONS: Final = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0]

# seconds: a timer of the kernel is late by a fraction of a millisecond, a busy event loop by what a handler takes
LATENESSES: Final = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0]

# three digits at most: the response writer refuses more, and the server's own are constants
_STATUSES: Final = 1000
_SWITCHING_PROTOCOLS: Final = 101


@dataclass(frozen=True, slots=True)
class HistogramCounts(Value):
    """A snapshot of a histogram. `counts[i]` observations were at most `bounds[i]` and above the bound before it; the
    last of `counts` were above all bounds. `sum` is the sum of all observations."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Histogram:
    """Counts observations in fixed intervals. `bounds` must ascend."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: list[float]) -> None:
        self._bounds: Final = bounds
        self._counts: Final = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count `value`."""
        bounds = self._bounds
        index = 0
        # most requests and deadlines are in the first intervals
        while index < len(bounds) and value > bounds[index]:
            index += 1
        self._counts[index] += 1
        self._sum += value

    def snapshot(self) -> HistogramCounts:
        """Return the counts until now."""
        return HistogramCounts(tuple(self._bounds), tuple(self._counts), self._sum)


class Counts:
    """The counts of one server since its start. No count ever gets smaller.

    `accepted`: connections. `handled`: requests that had a handler. `reasons`: why connections have ended.
    `worst_lateness`: of a deadline that has ended one, in seconds. `received`, `sent`: bytes of connections that have
    ended.
    """

    __slots__ = (
        "_requests",
        "accepted",
        "durations",
        "expired",
        "handled",
        "lateness",
        "reasons",
        "received",
        "sent",
        "worst_lateness",
    )

    def __init__(self) -> None:
        # by method: how many have ended with each status
        self._requests: dict[str, list[int]] = {}
        self.durations: Final = Histogram(DURATIONS)
        self.lateness: Final = Histogram(LATENESSES)
        self.expired: Final[dict[Phase, int]] = {}
        self.reasons: Final[dict[Reason, int]] = {}
        self.worst_lateness: float = 0.0
        self.accepted: int = 0
        self.handled: int = 0
        self.received: int = 0
        self.sent: int = 0

    def request(self, method: str, status: int, seconds: float) -> None:
        """Count a request that was handled for `seconds`. `status` 0: nothing was answered. A request that has changed
        the protocol is counted, but not its time: that is a session's."""
        statuses = self._requests.get(method)
        if statuses is None:
            statuses = self._statuses_of(method)
        statuses[status] += 1
        if status != _SWITCHING_PROTOCOLS:
            self.durations.observe(seconds)

    def refused(self, status: int) -> None:
        """Count a request that was answered with `status` before it had a handler."""
        self._statuses_of(OTHER)[status] += 1

    def expiry(self, phase: Phase, lateness: float) -> None:
        """Count a deadline of `phase` that has ended its connection, `lateness` seconds after it had passed."""
        self.expired[phase] = self.expired.get(phase, 0) + 1
        self.lateness.observe(lateness)

    def end(self, reason: Reason, lateness: float) -> None:
        """Count a connection that has ended for `reason`. `lateness`: of the deadline that has ended it, or 0.0."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.worst_lateness = max(self.worst_lateness, lateness)

    def requests(self) -> dict[tuple[str, int], int]:
        """Return how many requests were counted, by method and status."""
        return {
            (method, status): number
            for method, statuses in self._requests.items()
            for status, number in enumerate(statuses)
            if number
        }

    def _statuses_of(self, method: str) -> list[int]:
        known = method if method in METHODS else OTHER
        statuses = self._requests.get(known)
        if statuses is None:
            statuses = self._requests[known] = [0] * _STATUSES
        return statuses


@dataclass(frozen=True)
class HttpStatistics(Value):
    """Counts of a server. Now: `open` connections, how many of them are in each of the `phases`, requests that are
    `in_flight`, and detached handlers in the `background`. Totals since the start: `accepted` connections, `requests`
    that were handled, ended connections by their `reasons`, and the `worst_lateness` of a deadline that cut one, in
    seconds.

    `answered`: requests by method and status, those refused before a handler as `other`, which also stands for methods
    that HTTP does not define; status 0 is no answer. `durations`: seconds from the end of a request's head until its
    connection was done with it, of those that were handled. `expired`: deadlines that have ended a connection, by their
    phase; `lateness`: by how many seconds they were late. `received`, `sent`: as in `ConnectionRecord`. `admission`:
    requests that run and that wait for their turn, None if their number is not limited."""

    open: int
    phases: Mapping[Phase, int]
    in_flight: int
    background: int
    accepted: int
    requests: int
    reasons: Mapping[Reason, int]
    worst_lateness: float
    answered: Mapping[tuple[str, int], int]
    durations: HistogramCounts
    expired: Mapping[Phase, int]
    lateness: HistogramCounts
    received: int
    sent: int
    admission: AdmissionStatistics | None
