"""The deadlines of one websocket, and which of them is the nearest. Pure: times and bytes are arguments.

They are those of a message that is incomplete, of the peer's answer to a ping or a close (`liveness.py`), and of the
websocket itself.
"""

from __future__ import annotations

from .liveness import Liveness
from .policy import RULES, Rule, body_deadline
from .timeouts import INF, Timeouts


class Incomplete:
    """The message of which the end has not come, if there is one: since when it comes, and how much has come."""

    __slots__ = ("_began", "_received")

    def __init__(self) -> None:
        # when its first bytes came, INF if there is none; and bytes that have come since
        self._began: float = INF
        self._received: int = 0

    def note(self, incomplete: bool, complete: bool, size: int, now: float) -> bool:
        """Note that `size` bytes came at `now`: with them a message was complete, or one is incomplete, or both. Return
        True if one begins with them."""
        if not incomplete:
            self._began = INF
            return False
        if self._began < INF and not complete:
            self._received += size
            return False
        self._began = now
        # of what came with the end of another message nobody knows how much is of this one
        self._received = 0 if complete else size
        return True

    def begin_again(self, now: float) -> None:
        """Count the time of the message from `now`: nothing was read before."""
        if self._began < INF:
            self._began = now

    def deadline(self, timeouts: Timeouts) -> float:
        """Return when more of it must have come; INF if there is none."""
        return INF if self._began == INF else body_deadline(INF, self._began, self._received, timeouts)[0]


class Deadlines:
    """What a websocket waits for, and until when."""

    __slots__ = ("_end_by", "_end_rule", "incomplete", "liveness")

    def __init__(self) -> None:
        self.liveness: Liveness = Liveness()
        self.incomplete: Incomplete = Incomplete()
        # when the drain or the connection's age closes the websocket, and the rule for it
        self._end_by: float = INF
        self._end_rule: Rule = RULES["connection_age"]

    def end_by(self, when: float, rule: Rule) -> None:
        """Let the closing handshake begin by `rule` at `when`, whatever the peer does. Replaces what was set before."""
        self._end_by = when
        self._end_rule = rule

    def begin_again(self, now: float) -> None:
        """Count all from now, because nothing was read before, or the times have changed: a wait may have been without
        a limit, and must not end as if it were late."""
        self.liveness.begin_again(now)
        self.incomplete.begin_again(now)

    def next(self, timeouts: Timeouts, read_by: float, full: bool) -> tuple[float, Rule | None]:
        """Return the nearest deadline of an open websocket, and its rule; None for that of a ping. `read_by`: when the
        application wants to have received more. `full`: nothing is read, so that no message can come whole."""
        when, rule = self.liveness.next(timeouts)
        by = INF if full else self.incomplete.deadline(timeouts)
        if by < when:
            when, rule = by, RULES["body_grace"]
        if read_by < when:
            when, rule = read_by, RULES["read"]
        if self._end_by < when:
            when, rule = self._end_by, self._end_rule
        return when, rule
