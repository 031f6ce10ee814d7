"""The lateness of timers: an HDR histogram of nanoseconds, and the timers that fired early.

HDR histograms (Gil Tene) keep three digits of every value from a nanosecond to an hour, can be added without loss, and
have one encoding for all languages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped,unused-ignore]

LONGEST: Final = 3_600 * 1_000_000_000
DIGITS: Final = 3


def _empty() -> HdrHistogram:
    return HdrHistogram(1, LONGEST, DIGITS)


@dataclass
class Lateness:
    """The lateness of a number of timers.

    `early`: how many fired before they were due; `earliest`: the most seconds by which one did. The histogram counts
    them as 0.
    """

    early: int = 0
    earliest: float = 0.0
    histogram: HdrHistogram = field(default_factory=_empty)

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Self:
        """Make it from seconds of lateness; negative values are early."""
        found = cls()
        for late in seconds:
            if late < 0.0:
                found.early += 1
                found.earliest = max(found.earliest, -late)
            found.histogram.record_value(min(max(round(late * 1e9), 0), LONGEST))
        return found

    def add(self, other: Self) -> None:
        """Add another repetition."""
        self.early += other.early
        self.earliest = max(self.earliest, other.earliest)
        self.histogram.add(other.histogram)

    @property
    def count(self) -> int:
        """The number of timers."""
        return int(self.histogram.get_total_count())

    def milliseconds(self, percentile: float) -> float:
        """Return the lateness that `percentile` per cent of the timers did not exceed, in milliseconds."""
        return float(self.histogram.get_value_at_percentile(percentile)) / 1e6

    def curve(self, percentiles: Sequence[float]) -> list[float]:
        """Return the milliseconds at each of the percentiles."""
        return [self.milliseconds(percentile) for percentile in percentiles]

    def document(self) -> dict[str, Any]:
        """Return a JSON document, which `load` reads."""
        points = {f"p{point:g}": self.milliseconds(point) for point in (50.0, 90.0, 99.0, 99.9, 100.0)}
        return {
            "timers": self.count,
            "early": self.early,
            "earliest": self.earliest,
            "milliseconds": points,
            "histogram": self.histogram.encode().decode(),
        }

    @classmethod
    def load(cls, read: dict[str, Any]) -> Self:
        """Make it from a document."""
        return cls(read["early"], read["earliest"], HdrHistogram.decode(read["histogram"]))
