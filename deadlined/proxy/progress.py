"""How far one try of a request has come, and so until when its upstream must send more, or take more.

Facts      The body of a request may still be sent while the response comes; the two end in any order.
           An upstream that cannot write may not read either: many send while they receive, as an echo does.
Hazard     Two tasks that set one deadline overwrite each other's. A client that sends or reads slowly would use up the
           time of its upstream, which would be ejected for that.
Answer     The deadline follows from the progress alone, in one function. A task calls it before each wait; whatever
           makes progress meanwhile applies it anew. While the client sends, the upstream has one deadline only, by
           which it must take what was sent (`take_deadline`), and none while the response waits for the client. Envoy's
           per_try_timeout also begins after the request.
Cost       A few comparisons per wait.
"""

from __future__ import annotations

from typing import Final

from ..net import Conn
from ..poll import Clock
from .options import INF, ProxyTimeouts

# seconds for the head of the response after the rest of the request could not be sent, for whatever reason: an upstream
# that refuses a body may have answered before it has closed
REFUSAL: Final = 1.0


class Progress:
    """The progress of one try on `conn`, which was begun at `begun`."""

    __slots__ = (
        "_begun",
        "_conn",
        "_timeouts",
        "awaits_client",
        "clock",
        "head_came",
        "refused",
        "sent_at",
        "waited_for_client_until",
    )

    def __init__(self, conn: Conn, clock: Clock, timeouts: ProxyTimeouts, begun: float) -> None:
        self._conn = conn
        self.clock: Clock = clock
        self._timeouts = timeouts
        self._begun = begun
        # the client has not sent all of its request when it is passed on
        self.awaits_client: bool = False
        # when the whole request was sent, or the rest of it could not be sent (`refused`); inf before
        self.sent_at: float = INF
        self.refused: bool = False
        # the head of the response has come. Call `apply` after setting it, before the next wait
        self.head_came: bool = False
        # until when the response has waited for the client to take it: inf while it does, -inf if it never has
        self.waited_for_client_until: float = -INF

    @property
    def deadline(self) -> float:
        """When the try must have the head of its response. Of a request that the client had not sent whole, that time
        begins once all was sent on, or no more can be: inf before."""
        return (self.sent_at if self.awaits_client else self._begun) + self._timeouts.upstream_per_try

    def note_sent(self, refused: bool = False) -> None:
        """Note that no more of the request will be sent: all of it was, or (`refused`) the rest cannot be. Apply the
        deadline that follows from that."""
        self.sent_at = self.clock.now()
        self.refused = refused
        self.apply()

    def apply(self) -> None:
        """Set the read deadline of the connection."""
        self._conn.set_read_deadline(self.read_deadline(self.clock.now()))

    def read_deadline(self, now: float) -> float:
        """Return when the upstream must have sent the whole head or, after it, the next bytes, if these are waited for
        from `now` on. While more of the request may be sent, only `deadline` counts before the head, and nothing after
        it."""
        if self.head_came:
            return INF if self.sent_at == INF else now + self._timeouts.upstream_idle
        answered_by = self.sent_at + (REFUSAL if self.refused else self._timeouts.upstream_first_byte)
        return min(answered_by, self.deadline)

    def write_deadline(self, since: float) -> float:
        """Return when the upstream must have taken more of the request, which has been waiting for that since `since`.
        It may be later when this is asked again."""
        return take_deadline(since, self.waited_for_client_until, self.clock.now(), self._timeouts.upstream_idle)


def take_deadline(since: float, waited_for_client_until: float, now: float, idle: float) -> float:
    """Return when an upstream must have taken more of what has been waiting for it since `since`: in `idle` seconds,
    which begin again, in full, once what it sends no longer waits for the client. `waited_for_client_until`: inf while
    that waits, -inf if it never has."""
    return max(since, min(waited_for_client_until, now)) + idle
