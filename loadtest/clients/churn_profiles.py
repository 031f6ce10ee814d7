"""The requests of `churn` and their times: evenly, in bursts, or all for one instant."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..peers.churn_protocol import CLOSE, INSTANT, MOVE


class Then(Enum):
    """What a client does after a request was answered."""

    GO_ON = "go on"  # move the deadline with its next request
    EXPECT = "expect"  # send nothing until the deadline has fired
    KEEP_QUIET = "keep quiet"  # cleared: send nothing while the old deadline passes
    CLOSE = "close"  # close before the deadline
    BE_CLOSED = "be closed"  # wait for the server to close


@dataclass(frozen=True)
class Move:
    """A request: its kind, its seconds, and what the client does after the answer."""

    kind: int
    seconds: float
    then: Then


class Profile(ABC):
    """A pattern of requests over time. An abstract base class.

    `period`: seconds between two requests of one connection.
    """

    def __init__(self, connections: int, rate: float, chance: random.Random) -> None:
        self.rate = rate
        self.period = connections / rate
        self.chance = chance

    def owed(self, seconds: float) -> int:
        """Return the number of requests that are due `seconds` after the start."""
        return int(seconds * self.rate)

    @abstractmethod
    def move(self, now: float, due: float) -> Move:
        """Return the next request of a connection whose deadline is at `due`."""

    def ahead(self) -> float:
        """Return a timeout that is moved before it expires if server and client keep up."""
        return self.chance.uniform(1.5, 2.5) * self.period + 0.5


class Steady(Profile):
    """Requests spread evenly: a tenth of the deadlines pass, a few are cleared, a few connections are closed."""

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
    """The same rate on average, but all requests at once, twice a second."""

    INTERVAL: Final = 0.5

    def owed(self, seconds: float) -> int:
        return int(math.ceil(seconds / self.INTERVAL) * self.INTERVAL * self.rate)


class Herd(Profile):
    """Nearly all deadlines at the same instant; then the next instant is chosen."""

    # seconds before the instant at which the next one is chosen
    MARGIN: Final = 0.3

    def __init__(self, connections: int, rate: float, chance: random.Random) -> None:
        super().__init__(connections, rate, chance)
        self._instant = -math.inf

    def move(self, now: float, due: float) -> Move:
        if self._instant - now < self.MARGIN:
            self._instant = now + 1.2 * self.period + 2 * self.MARGIN
        if due == self._instant:
            # move this one out of the herd again
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
