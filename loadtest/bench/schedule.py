"""Whose turn it is: repetition by repetition, case by case, the contestants in an order that is drawn anew each time.

What the machine does beside (a neighbour, the heat) then meets all of them. The seed is fixed, so that two runs have
the same order. How long is left is told from how long each turn took the last time.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SEED = 20_190_904


@dataclass(frozen=True)
class Turn:
    """One contestant in one case, for the n-th time (from 0)."""

    repetition: int
    contestant: str
    case: str

    @property
    def pair(self) -> tuple[str, str]:
        """What is repeated."""
        return self.contestant, self.case


def turns(pairs: Sequence[tuple[str, str]], repetitions: int, seed: int = SEED) -> list[Turn]:
    """All turns. `pairs` of contestant and case; the cases keep their order, the contestants in each are shuffled."""
    shuffle = random.Random(seed).shuffle
    found: list[Turn] = []
    for repetition in range(repetitions):
        for case in dict.fromkeys(case for _, case in pairs):
            names = [name for name, where in pairs if where == case]
            shuffle(names)
            found += [Turn(repetition, name, case) for name in names]
    return found


def seconds_left(rest: Sequence[Turn], took: Mapping[tuple[str, str], float]) -> float | None:
    """How long the turns in `rest` will last: as long as the last time, and the mean where there was none yet.

    None if nothing is known.
    """
    if not took:
        return None
    mean = statistics.fmean(took.values())
    return sum(took.get(turn.pair, mean) for turn in rest)
