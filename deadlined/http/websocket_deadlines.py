"""The deadlines of one websocket, and which of them is the nearest. Pure: times and bytes are arguments."""

from __future__ import annotations

from .inbox import Incomplete
from .liveness import Liveness
from .policy import RULES, Rule
from .timeouts import INF, Timeouts


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
