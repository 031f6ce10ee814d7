"""What a keep-alive connection does next, and when: evenly, rising, in bursts, or all for one instant. Pure.

`period` is the server's keep-alive deadline in seconds, or what stands for it if the server has none.
"""

from __future__ import annotations

import math
import random
from enum import Enum

# Seconds before the deadline at which the latest request is sent, at least, and as a part of the deadline. Requests
# that come close to the deadline are those that a server must not cut by a timer that it has moved.
MARGIN, MARGIN_PART = 0.1, 0.04
# connections that are opened per second at most, and the part of the duration that opening takes at most
OPENING_RATE, OPENING_PART = 2000.0, 1 / 3
# the burst's part of the period
_BURST = 0.1


class Act(Enum):
    """What a silent connection does."""

    SPEAK = "speak"
    WAIT = "wait until it is cut"
    CLOSE = "close"
    RESET = "reset"


class Steady:
    """Acts spread evenly: most move their deadline, some at the last moment; some wait for it; some leave before it.

    `cuts`: the server ends silent connections, so that waiting for that makes sense.
    """

    def __init__(self, period: float, chance: random.Random, *, cuts: bool = True) -> None:
        self.period = period
        self.cuts = cuts
        self.chance = chance
        self.last = period - max(MARGIN, MARGIN_PART * period)  # seconds of silence before the latest request

    def opening(self, number: int, connections: int, duration: float) -> float:
        """Return the seconds from the start to the opening of this connection, from 0 on."""
        return number * min(1 / OPENING_RATE, OPENING_PART * duration / connections)

    def next(self, now: float) -> tuple[Act, float]:
        """Return what a connection does that is silent from `now` on, and when; `inf` for a wait."""
        number = self.chance.random()
        if number < 0.7:
            return Act.SPEAK, now + self._some()
        if number < 0.8:
            return Act.SPEAK, now + self.last
        return self._leave(now, (number - 0.8) / 0.2)

    def back(self, now: float) -> float:
        """Return when a connection comes back that is gone since `now`."""
        return now + self.chance.uniform(0.0, 0.1) * self.period

    def _some(self) -> float:
        return self.chance.uniform(0.1, 0.9) * self.period

    def _leave(self, now: float, number: float) -> tuple[Act, float]:
        """Return how a connection ends: three in five wait, if the server ends them."""
        if number < 0.6:
            return (Act.WAIT, math.inf) if self.cuts else (Act.SPEAK, now + self._some())
        return (Act.CLOSE if number < 0.8 else Act.RESET), now + self._some()


class Ramp(Steady):
    """The same, with a number of connections that rises from none to all over the whole duration."""

    def opening(self, number: int, connections: int, duration: float) -> float:
        return duration * number / connections


class Burst(Steady):
    """The same on average, but all that is due in a tenth of the period happens at once at its beginning."""

    def next(self, now: float) -> tuple[Act, float]:
        act, when = super().next(now)
        if act is not Act.WAIT:
            step = _BURST * self.period
            when = max(now, math.floor(when / step) * step)
        return act, when


class Herd(Steady):
    """All speak at one instant, so that nearly all deadlines come at one instant, too. Then all come back.

    A cycle takes two periods: connections come back in its first half period, speak at 0.8, and are cut at 1.8.
    """

    def next(self, now: float) -> tuple[Act, float]:
        began = self._cycle(now)
        phase, number = (now - began) / self.period, self.chance.random()
        if phase < 0.75:
            if number < 0.92:
                return Act.SPEAK, began + 0.8 * self.period
            return self._leave(now, 0.6 + 5 * (number - 0.92))
        if phase < 1.4 and (number < 0.1 or not self.cuts):
            return Act.SPEAK, began + 1.6 * self.period  # moved out of the herd
        return (Act.WAIT, math.inf) if self.cuts else (Act.SPEAK, now + 0.5 * self.period)

    def back(self, now: float) -> float:
        return self._cycle(now) + (2 + self.chance.uniform(0.0, 0.5)) * self.period

    def _cycle(self, now: float) -> float:
        return math.floor(now / (2 * self.period)) * 2 * self.period


PROFILES: dict[str, type[Steady]] = {"steady": Steady, "ramp": Ramp, "burst": Burst, "herd": Herd}
