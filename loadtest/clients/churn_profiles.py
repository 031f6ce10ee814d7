"""What the connections of `churn` ask for, and when: evenly, in bursts, or all for one instant."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..peers.churn_protocol import CLOSE, INSTANT, MOVE


class Then(Enum):
    """What the client does after a request was answered."""

    GO_ON = "go on"  # the deadline will be moved when its turn comes
    EXPECT = "expect"  # says nothing until the deadline has fired
    KEEP_QUIET = "keep quiet"  # cleared: says nothing while the old deadline passes
    CLOSE = "close"  # the client closes before the deadline
    BE_CLOSED = "be closed"  # the server does


@dataclass(frozen=True)
class Move:
    """One request: its kind, its seconds, and what is done after the answer."""

    kind: int
    seconds: float
    then: Then


class Profile(ABC):
    """How requests are spread over time, and what each asks for.

    `period`: seconds between two turns of one connection.
    """

    def __init__(self, connections: int, rate: float, chance: random.Random) -> None:
        self.rate = rate
        self.period = connections / rate
        self.chance = chance

    def owed(self, seconds: float) -> int:
        """How many requests should have been made `seconds` after the start."""
        return int(seconds * self.rate)

    @abstractmethod
    def move(self, now: float, due: float) -> Move:
        """The next request of a connection whose deadline is at `due`."""

    def ahead(self) -> float:
        """A timeout that is moved on before it is over, if the server and we keep up: old ones pass meanwhile."""
        return self.chance.uniform(1.5, 2.5) * self.period + 0.5


class Steady(Profile):
    """Evenly: a tenth of the deadlines pass, a few are cleared, and a few connections are closed."""

    def move(self, now: float, due: float) -> Move:
        number = self.chance.random()
        if number < 0.82:
            return Move(MOVE, self.ahead(), Then.GO_ON)
        if number < 0.92:
            return Move(MOVE, self.chance.uniform(0.05, 0.05 + self.period), Then.EXPECT)
        if number < 0.98:
            return Move(MOVE, math.inf, Then.KEEP_QUIET)
        if number < 0.99:
            return Move(MOVE, self.ahead(), Then.CLOSE)
        return Move(CLOSE, self.ahead(), Then.BE_CLOSED)


class Burst(Steady):
    """The same on the average, but twice a second, all at once."""

    INTERVAL: Final = 0.5

    def owed(self, seconds: float) -> int:
        return int(math.ceil(seconds / self.INTERVAL) * self.INTERVAL * self.rate)


class Herd(Profile):
    """Nearly all deadlines are at the same instant; then the next instant is chosen."""

    # seconds before the instant from which on the next one is chosen
    MARGIN: Final = 0.3

    def __init__(self, connections: int, rate: float, chance: random.Random) -> None:
        super().__init__(connections, rate, chance)
        self._instant = -math.inf

    def move(self, now: float, due: float) -> Move:
        if self._instant - now < self.MARGIN:
            self._instant = now + 1.2 * self.period + 2 * self.MARGIN
        if due == self._instant:
            # one that is taken out of the herd again
            kept = self.chance.random() < 0.5
            return Move(MOVE, self.ahead(), Then.GO_ON) if kept else Move(MOVE, math.inf, Then.KEEP_QUIET)
        number = self.chance.random()
        if number < 0.92:
            return Move(INSTANT, self._instant, Then.EXPECT)
        if number < 0.98:
            return Move(INSTANT, self._instant, Then.GO_ON)
        if number < 0.99:
            return Move(INSTANT, self._instant, Then.CLOSE)
        return Move(CLOSE, self._instant - now, Then.BE_CLOSED)


PROFILES: Final[dict[str, type[Profile]]] = {"steady": Steady, "burst": Burst, "herd": Herd}
