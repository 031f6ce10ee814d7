"""When each request of an open loop is due. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Arrivals at `rate` per second for `duration` seconds; with `ramp` the rate grows from nothing to `rate`.

    One of `parts` processes takes every `parts`-th arrival, from the `part`-th on.
    """

    rate: float
    duration: float
    ramp: bool = False
    part: int = 0
    parts: int = 1

    def __len__(self) -> int:
        """Return the number of arrivals of this part."""
        total = math.floor(self.rate * self.duration / (2 if self.ramp else 1) + 1e-9)
        return max(0, -(-(total - self.part) // self.parts))

    def when(self, number: int) -> float:
        """Return the seconds from the start to this part's arrival of that number, from 0 on."""
        arrival = number * self.parts + self.part
        if self.ramp:
            # rate * t**2 / (2 * duration) have come by the time t
            return math.sqrt(2 * self.duration * arrival / self.rate)
        return arrival / self.rate
