"""The order of measurements: by repetition and case, with the contestants shuffled each time.

So a disturbance of the machine (a neighbour, heat) affects all of them. The seed is fixed: two runs have one order.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SEED = 20_190_904


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


def turns(pairs: Sequence[tuple[str, str]], repetitions: int, seed: int = SEED) -> list[Turn]:
    """Return all turns. `pairs` are of contestant and case; cases keep their order, contestants are shuffled."""
    shuffle = random.Random(seed).shuffle
    found: list[Turn] = []
    for repetition in range(repetitions):
        for case in dict.fromkeys(case for _, case in pairs):
            names = [name for name, where in pairs if where == case]
            shuffle(names)
            found += [Turn(repetition, name, case) for name in names]
    return found


def seconds_left(remaining: Sequence[Turn], took: Mapping[tuple[str, str], float]) -> float | None:
    """Estimate how long the remaining turns last: what each pair took the last time, or the mean of the others.

    None if no turn was measured yet.
    """
    if not took:
        return None
    mean = statistics.fmean(took.values())
    return sum(took.get(turn.pair, mean) for turn in remaining)
