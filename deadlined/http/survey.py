"""A count of the open connections of a server, in pieces: how many are in each phase, and the first ones in an order.

Facts      Looking at a connection takes about a microsecond, and a server may have tens of thousands.
Hazard     Looking at all of them at once keeps every client waiting. Between two pieces connections come and go: one
           could be counted twice, or a total go back.
Answer     A survey is of the connections that were open when it was made, each of which it visits once. One that has
           ended since is not counted as open. Its bytes are counted in any case: those of connections that had ended
           before were read at the beginning, and each visited one adds its own.
Cost       Connections that end meanwhile are kept in memory until the survey has visited them.

Nothing here waits: the caller lets other tasks run between two pieces.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import Final

from ..poll import Clock
from .admission import Admission
from .base import ConnectionBase
from .counts import Counts, HttpStatistics
from .exchange import Exchange
from .records import ConnectionInfo
from .state import CLOSED, UPGRADED, Phase

# the phases of a request after its head
_IN_FLIGHT: Final = frozenset((Phase.BODY, Phase.HANDLER, Phase.WRITE))

# bytes of a path that `busiest_paths` shows
_LONGEST_PATH: Final = 100

# of a raw connection, and of OPTIONS for the server as a whole
_NO_PATH: Final = b"*"


class Survey:
    """Counts `connections`, and finds the first `limit` of them, or of those in `phase`, in the order of `sort`: id,
    age, left or requests; the last ones if `descending`.

    `phases`: how many of the visited connections are in each phase. `in_flight`: how many have a request that is being
    received, handled or answered: none after an upgrade, also while its output waits. `received`, `sent`: bytes of HTTP
    of all connections that had ended before and of all visited ones.
    """

    def __init__(
        self,
        connections: Iterable[ConnectionBase],
        counts: Counts,
        clock: Clock,
        phase: Phase | None,
        sort: str,
        descending: bool,
        limit: int,
    ) -> None:
        self.phases: Final[dict[Phase, int]] = {}
        self.in_flight: int = 0
        self.received: int = counts.received
        self.sent: int = counts.sent
        self._left: Final = list(connections)
        self._clock: Final = clock
        self._phase: Final = phase
        self._sort: Final = sort
        # ranks are multiplied by it, so that the order is always ascending
        self._sign = -1.0 if descending else 1.0
        self._limit = limit
        # rank, id and connection of the first ones until now, in their order
        self._first: list[tuple[float, float, ConnectionBase]] = []

    @property
    def left(self) -> int:
        """The number of connections that were not visited yet."""
        return len(self._left)

    def advance(self, most: int) -> None:
        """Visit `most` more connections, or all that are left."""
        piece = self._left[-most:]
        del self._left[-most:]
        for connection in piece:
            self.received += connection.transport.received
            self.sent += connection.transport.sent
            if connection.state != CLOSED:
                phase = connection.current_phase
                self.phases[phase] = self.phases.get(phase, 0) + 1
                if connection.state < UPGRADED and phase in _IN_FLIGHT:
                    self.in_flight += 1
        if self._limit:
            self._rank(piece)

    @property
    def undescribed(self) -> int:
        """The number of connections that were found and not described yet."""
        return len(self._first)

    def describe(self, most: int) -> list[ConnectionInfo]:
        """Describe `most` more of the first connections, in their order, once all were visited. Those that have ended
        or changed their phase since are left out."""
        found = [connection for _, _, connection in self._first[:most] if self._is_wanted(connection)]
        del self._first[:most]
        now = self._clock.now()
        return [_described(connection, now) for connection in found]

    def _rank(self, piece: list[ConnectionBase]) -> None:
        """Let the first connections be those of this piece and of what came before."""
        sort, sign, first = self._sort, self._sign, self._first
        worst_rank = worst_number = float("inf")
        if len(first) >= self._limit:
            worst_rank, worst_number, _ = first[-1]
        found = first
        for connection in piece:
            rank = sign * _rank_of(connection, sort)
            # most come after all of the first ones, and need no tuple
            if rank <= worst_rank and self._is_wanted(connection):
                number = sign * connection.number
                if rank < worst_rank or number < worst_number:
                    found.append((rank, number, connection))
        self._first = heapq.nsmallest(self._limit, found)

    def _is_wanted(self, connection: ConnectionBase) -> bool:
        return connection.state != CLOSED and (self._phase is None or connection.current_phase is self._phase)


def statistics_of(counts: Counts, survey: Survey, background: int, admission: Admission) -> HttpStatistics:
    """Return a snapshot of what a server has counted. `survey` must have visited all its connections."""
    return HttpStatistics(
        open=sum(survey.phases.values()),
        phases=Counter(survey.phases),
        in_flight=survey.in_flight,
        background=background,
        accepted=counts.accepted,
        requests=counts.handled,
        reasons=Counter(counts.reasons),
        worst_lateness=counts.worst_lateness,
        answered=counts.requests(),
        durations=counts.durations.snapshot(),
        expired=dict(counts.expired),
        lateness=counts.lateness.snapshot(),
        received=survey.received,
        sent=survey.sent,
        admission=admission.statistics(),
    )


def busiest_paths(connections: Iterable[ConnectionBase], background: Iterable[Exchange], most: int) -> dict[str, int]:
    """Return the `most` frequent paths of the current requests of `connections` and of those in `background`, with
    their numbers, the most frequent first. Queries are left out, and what is longer than _LONGEST_PATH is cut."""
    numbers: dict[bytes, int] = {}
    # a request can be both for a moment
    for exchange in {*background, *[one.exchange for one in connections]}:
        path = _NO_PATH if exchange is None else exchange.request.path
        if path != _NO_PATH:
            shown = path if len(path) <= _LONGEST_PATH else path[:_LONGEST_PATH] + b"..."
            numbers[shown] = numbers.get(shown, 0) + 1
    found = heapq.nsmallest(most, [(-number, path) for path, number in numbers.items()])
    return {path.decode("ascii"): -number for number, path in found}


def _described(connection: ConnectionBase, now: float) -> ConnectionInfo:
    phase, left = connection.current_phase, connection.next_deadline - now
    age = now - connection.accepted
    return ConnectionInfo(connection.number, connection.peer, phase, age, left, connection.requests)


def _rank_of(connection: ConnectionBase, sort: str) -> float:
    """Return a number that orders connections as the field `sort` of their descriptions does, at any one time."""
    if sort == "id":
        return connection.number
    if sort == "age":
        return -connection.accepted
    return connection.next_deadline if sort == "left" else connection.requests
