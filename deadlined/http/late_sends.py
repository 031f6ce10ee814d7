"""Sends that come when their peer has gone."""

from __future__ import annotations

from .policy import DISCONNECT_GRACE
from .timeouts import INF


class LateSends:
    """The sends to one peer that came after it had gone. The first ones may do nothing, because the handler has not
    heard of the disconnect yet. `number`: how many there were."""

    __slots__ = ("_until", "number")

    def __init__(self) -> None:
        self.number: int = 0
        # DISCONNECT_GRACE seconds after the first
        self._until: float = INF

    def count(self, now: float, most: int) -> bool:
        """Count a send at `now`. Return True if it may do nothing: it is one of the first `most`, and comes at most
        DISCONNECT_GRACE seconds after the first."""
        if not self.number:
            self._until = now + DISCONNECT_GRACE
        self.number += 1
        return self.number <= most and now <= self._until
