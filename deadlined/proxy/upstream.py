"""One upstream: its idle connections, how many requests it has, and whether it is fit for more.

Facts      A server that has failed several times in a row is likely to fail again, and to take long for it. One that
           sends more than it was asked for, such as a body after a HEAD, is likely to do it again, too.
Hazard     An upstream that refuses at once has the fewest requests, so it would get all of them. A response that nobody
           has asked for and that comes while a request has the connection is taken for its answer.
Answer     Passive ejection (Envoy's outlier detection): after a number of failures in a row it is left out for some
           seconds, and twice as long each time, until a request succeeds. Only failures of the upstream itself count,
           not the statuses that its application answers, nor the end of a tunnel, which a client can bring about. The
           balancer decides what happens if all are left out. One that has sent what nobody asked for gets each request
           on a new connection, for a minute, and then twice as long each time: nothing of an earlier request can come
           on it.
Cost       Two comparisons per choice, and one per connection that is kept.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..errors import DeadlineExceeded
from ..net.errors import SHORTAGES
from ..poll import Clock
from ..value import Value
from .address import Address
from .connection import ConnectionUser, UpstreamConnection
from .errors import Failure, Overloaded, UpstreamError
from .options import INF

_log: Final = logging.getLogger("deadlined.proxy")

# failures in a row after which an upstream is ejected
TOLERATED: Final = 3
# seconds of the first ejection in a row, and of the longest
EJECTION: Final = 5.0
LONGEST_EJECTION: Final = 60.0

# seconds for which no connection is kept after an upstream has sent what nobody asked for: at first, and at most. It is
# a mistake of its program, which does not mend itself
DISTRUST: Final = 60.0
LONGEST_DISTRUST: Final = 3600.0

# errors of a connect at whose address nobody listens
_REFUSALS: Final = frozenset((errno.ECONNREFUSED, errno.ENOENT))

# what a failed connect is called. EADDRNOTAVAIL is of one upstream, like a refusal: this machine has no address of its
# family (no IPv6), or all ports are in use towards it. The others can be reached
_NO_ADDRESS: Final = "no local address or port is left for a connection to the upstream"
_NO_ANSWER: Final = "the upstream accepts no connection"


@dataclass(frozen=True, slots=True)
class UpstreamStatistics(Value):
    """A snapshot. `active`: requests and tunnels at the upstream now; `idle`: its idle connections; `tries`: requests
    for it so far, also those that are repeated or find no connection; `connects`: connections that were made;
    `failures`: by their names; `available`, `ejected`: whether it gets requests now."""

    address: str
    active: int
    idle: int
    tries: int
    connects: int
    failures: dict[str, int]
    available: bool
    ejected: bool


class Upstream(ConnectionUser):
    """An upstream at `address`. `active`: requests and tunnels that it has now. `available`: False while it is known
    that it does not accept connections. `on_refusal` is called whenever a connect finds nobody who listens,
    `on_ejection` whenever an ejection begins, or ends before its time."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address: Final = address
        self.active: int = 0
        self.available: bool = True
        self.on_refusal: Callable[[], object] | None = None
        self.on_ejection: Callable[[], object] | None = None
        # when an ejection ends, absolute; -inf if there is none
        self.ejected_until: float = -INF
        # until when no connection is kept, absolute, and for how many seconds the next time
        self._distrusted_until: float = 0.0
        self._next_distrust: float = DISTRUST
        self._clock: Final = clock
        # the one that was used last is the last one, and is used first
        self._idle: list[UpstreamConnection] = []
        self._in_a_row: int = 0
        self._ejections: int = 0
        self._tries: int = 0
        self._connects: int = 0
        self._failures: Counter[str] = Counter()

    @property
    def ejected(self) -> bool:
        """True while it is left out because of its failures."""
        return self.ejected_until > self._clock.now()

    def count_try(self) -> None:
        """Count a request that is sent to the upstream."""
        self._tries += 1

    @property
    def has_idle(self) -> bool:
        """True if there is an idle connection."""
        return bool(self._idle)

    def pop_idle(self) -> UpstreamConnection | None:
        """Return the idle connection that was used last, None if there is none. It is still parked: unpark or lend
        it."""
        return self._idle.pop() if self._idle else None

    async def connect(self, deadline: float) -> UpstreamConnection:
        """Make a connection. Raise UpstreamError; Overloaded if this process lacks what any connection needs."""
        try:
            conn = await self.address.connect(deadline)
        except DeadlineExceeded as late:
            raise UpstreamError(
                Failure.CONNECT_TIMEOUT, "the upstream has not accepted the connection in time"
            ) from late
        except OSError as error:
            if error.errno in SHORTAGES:
                # no upstream is at fault
                raise Overloaded(f"no connection to an upstream can be made: {os.strerror(error.errno)}") from error
            if error.errno in _REFUSALS and self.on_refusal is not None:
                self.on_refusal()
            detail = _NO_ADDRESS if error.errno == errno.EADDRNOTAVAIL else _NO_ANSWER
            raise UpstreamError(Failure.CONNECT, detail) from error
        self._connects += 1
        return UpstreamConnection(conn, self._clock)

    def take_back(self, connection: UpstreamConnection, reuse: float) -> None:
        """Keep a connection for the next request, for `reuse` seconds, if it is reusable; reset it otherwise."""
        distrusted = self._distrusted_until > 0.0 and self._distrusted_until > self._clock.now()
        if connection.is_reusable and self.available and not distrusted and connection.park(self, reuse):
            self._idle.append(connection)
        else:
            # this may be so after each request: a close would leave this end in TIME_WAIT, and after some ten thousand
            # of these no port is left
            connection.abort()
            self._note_unasked(connection)

    def connection_ready(self, connection: UpstreamConnection) -> None:
        """Forget an idle connection: whatever has come on it, or nothing in time, it cannot be used any more."""
        connection.discard()
        self._idle.remove(connection)
        self._note_unasked(connection)

    def succeeded(self) -> None:
        """Note that the upstream has answered a request to the end."""
        self._in_a_row = self._ejections = 0
        if self.ejected_until > -INF:
            self._eject_until(-INF)

    def broke_off(self, failure: Failure) -> None:
        """Count that a tunnel to the upstream has broken off. Its client may have brought that about, so it ejects
        nobody."""
        self._failures[failure] += 1

    def failed(self, failure: Failure) -> None:
        """Note that the upstream has failed, and eject it if it does so for the TOLERATED time in a row."""
        self._failures[failure] += 1
        self._in_a_row += 1
        if self._in_a_row >= TOLERATED and not self.ejected:
            seconds = min(EJECTION * 2.0**self._ejections, LONGEST_EJECTION)
            # one more failure after the end ejects it again
            self._ejections = min(self._ejections + 1, 10)
            self._eject_until(self._clock.now() + seconds)

    def close(self) -> None:
        """Close the idle connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.unpark()
            connection.close()

    def statistics(self) -> UpstreamStatistics:
        """Return a snapshot of the counts."""
        return UpstreamStatistics(
            address=str(self.address),
            active=self.active,
            idle=len(self._idle),
            tries=self._tries,
            connects=self._connects,
            failures=dict(self._failures),
            available=self.available,
            ejected=self.ejected,
        )

    def _eject_until(self, when: float) -> None:
        self.ejected_until = when
        if self.on_ejection is not None:
            self.on_ejection()

    def _note_unasked(self, connection: UpstreamConnection) -> None:
        """Keep no connection for some time if bytes came on this one that nobody has asked for."""
        if not connection.unasked:
            return
        seconds = self._next_distrust
        self._next_distrust = min(2 * seconds, LONGEST_DISTRUST)
        self._distrusted_until = self._clock.now() + seconds
        self.close()
        _log.warning(
            "%s: the upstream has sent what no request has asked for: no connection to it is used twice for %g s",
            self.address,
            seconds,
        )
