"""The one statistic of all benchmarks: the median over starts, with a 95 % interval by the bootstrap (scipy).

Facts      Two starts of one server differ by more than two measurements of one start, so a value is that of one start.
Hazard     A median without an interval hides that another ten starts would give another one.
Answer     The starts are drawn again, with replacement, and the median of each draw is taken; the middle 95 % of these
           are the interval. The draws have a fixed seed: the same values always give the same interval.
Cost       Below five starts the interval is little more than the least and the most; one start has none.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

CONFIDENCE: Final = 0.95
_DRAWS: Final = 2000
_SEED: Final = 20_190_904


@dataclass(frozen=True)
class Spread:
    """The median of the values of all starts, and the ends of its interval, which are the median for a single value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Summarize values. ValueError if there are none."""
        median = statistics.median(values)
        if min(values) == max(values):
            return cls(median, median, median)
        return cls(median, *_interval((values,), _median))

    @classmethod
    def of_ratio(cls, ours: Sequence[float], theirs: Sequence[float]) -> Self | None:
        """Divide the median of `ours` by that of `theirs`; None if either has no values, or if a value of theirs is not
        positive."""
        if not ours or not theirs or min(theirs) <= 0:
            return None
        ratio = statistics.median(ours) / statistics.median(theirs)
        if min(ours) == max(ours) and min(theirs) == max(theirs):
            return cls(ratio, ratio, ratio)
        return cls(ratio, *_interval((ours, theirs), _ratio))

    def within(self, part: float) -> bool:
        """True if the interval reaches at most this part of the median to either side."""
        return max(self.high - self.median, self.median - self.low) <= part * abs(self.median)


def _interval(samples: Sequence[Sequence[float]], statistic: Any) -> tuple[float, float]:
    from scipy.stats import bootstrap  # type: ignore[import-untyped,unused-ignore]  # takes half a second

    # of a single value, which cannot be drawn otherwise, two
    drawn = [list(sample) * (2 if len(sample) == 1 else 1) for sample in samples]
    found = bootstrap(drawn, statistic, n_resamples=_DRAWS, confidence_level=CONFIDENCE, method="percentile",
                      vectorized=True, rng=_SEED).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


def _median(values: Any, axis: int) -> Any:
    import numpy

    return numpy.median(values, axis=axis)


def _ratio(ours: Any, theirs: Any, axis: int) -> Any:
    return _median(ours, axis) / _median(theirs, axis)
