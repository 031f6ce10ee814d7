"""The one statistic of all benchmarks: the median over starts, with a 95 % interval by the bootstrap (scipy).

Facts      Two starts of one server differ by more than two measurements of one start, so a value is that of one start.
Hazard     A median without an interval hides that another ten starts would give another one.
Answer     The starts are drawn again, with replacement, and the median of each draw is taken; the middle 95 % of these
           are the interval. The draws have a fixed seed: the same values always give the same interval.
Cost       Below five starts the interval is little more than the least and the most; one start has none.
"""

from __future__ import annotations

import functools
import operator
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

CONFIDENCE = 0.95
_DRAWS = 2000
_SEED = 20_190_904


def number(value: float) -> str:
    """Format a number with three significant digits, or as a whole number from 100 on: 1,234; 56.8; 0.0123."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass(frozen=True)
class Spread:
    """The median of the values of all starts, and the ends of its interval, which are the median for a single value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, *samples: Sequence[float]) -> Self:
        """Summarize the values of one sample; of two, the median of the first divided by that of the second.

        ValueError if one has no values, ZeroDivisionError if the second median is 0.
        """
        median = functools.reduce(operator.truediv, map(statistics.median, samples))
        if all(min(values) == max(values) for values in samples):
            return cls(median, median, median)
        return cls(median, *_interval(samples))

    def __str__(self) -> str:
        """Format it as "98.1 (97.2 to 99)", or "98.1" if it has no interval."""
        return number(self.median) + (f" ({self.interval})" if self.interval else "")

    @property
    def interval(self) -> str:
        """The interval as "97.2 to 99"; "" if there is none."""
        return "" if self.low == self.high else f"{number(self.low)} to {number(self.high)}"

    def within(self, part: float) -> bool:
        """True if the interval reaches at most this part of the median to either side."""
        return max(self.high - self.median, self.median - self.low) <= part * abs(self.median)


def _interval(samples: Sequence[Sequence[float]]) -> tuple[float, float]:
    # these take half a second
    import numpy
    from scipy.stats import bootstrap  # type: ignore[import-untyped,unused-ignore]

    def statistic(*drawn: Any, axis: int) -> Any:
        return functools.reduce(operator.truediv, (numpy.median(values, axis=axis) for values in drawn))

    # of a single value, which cannot be drawn otherwise, two
    drawn = [list(values) * (2 if len(values) == 1 else 1) for values in samples]
    found = bootstrap(drawn, statistic, n_resamples=_DRAWS, confidence_level=CONFIDENCE, method="percentile",
                      vectorized=True, rng=_SEED).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)
