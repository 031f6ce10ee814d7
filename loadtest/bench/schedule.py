"""The order of measurements, and when there are enough of them.

By repetition and case, with the contestants shuffled each time: so a disturbance of the machine (a neighbour, heat)
affects all of them. The seed is fixed: two runs have one order.

The stopping rule, stated in every table: each pair is measured `repetitions` times, and then again and again until the
interval of its first metric reaches at most PRECISE to either side of the median, but twice as often at most. A number
of repetitions that was asked for is exact.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

SEED = 20_190_904
PRECISE = 0.05


@dataclass(frozen=True)
class Turn:
    """One measurement: a contestant in a case. `repetition` counts from 0."""

    repetition: int
    contestant: str
    case: str

    @property
    def pair(self) -> tuple[str, str]:
        """Contestant and case."""
        return self.contestant, self.case


@dataclass(frozen=True)
class Rule:
    """How often a pair is measured: `least` times, and up to `most` while its interval is wider than PRECISE."""

    least: int
    most: int

    @property
    def text(self) -> str:
        """The rule for people."""
        if self.least == self.most:
            return f"{self.least} start{'s' if self.least > 1 else ''} each"
        return f"{self.least} starts each, up to {self.most} until the interval is within {PRECISE:.0%} of the median"


def turns(pairs: Sequence[tuple[str, str]], repetitions: int, first: int = 0) -> list[Turn]:
    """Return the turns of `repetitions` from the `first` on. `pairs` are of contestant and case; cases keep their
    order, contestants are shuffled."""
    found: list[Turn] = []
    for repetition in range(first, first + repetitions):
        shuffle = random.Random(SEED + repetition).shuffle
        for case in dict.fromkeys(case for _, case in pairs):
            names = [name for name, where in pairs if where == case]
            shuffle(names)
            found += [Turn(repetition, name, case) for name in names]
    return found
