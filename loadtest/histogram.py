"""Histograms of times, in microseconds with three digits (hdrhistogram): filled, sent to another process, and read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped,unused-ignore]

# microseconds; an hour
_LONGEST = 3_600_000_000


def histogram() -> HdrHistogram:
    """Return an empty histogram of microseconds."""
    return HdrHistogram(1, _LONGEST, 3)


def record(into: HdrHistogram, seconds: float) -> None:
    """Count a time; less than a microsecond counts as one."""
    into.record_value(min(_LONGEST, max(1, round(seconds * 1e6))))


def milliseconds(of: HdrHistogram, points: Iterable[float] = (50, 90, 99, 99.9)) -> dict[str, float | None]:
    """Return percentiles by their names, and the largest as "max"; None of nothing."""
    names = {f"p{point:g}": point for point in points}
    if not of.get_total_count():
        return dict.fromkeys((*names, "max"))
    return {**{name: of.get_value_at_percentile(point) / 1000 for name, point in names.items()},
            "max": of.get_max_value() / 1000}  # fmt: skip


class Sent:
    """An object with histograms that goes to another process: the library's go encoded only."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value.encode() if isinstance(value, HdrHistogram) else value
                for name, value in self.__dict__.items()}  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        # nothing else in a tally is bytes
        for name, value in state.items():
            setattr(self, name, HdrHistogram.decode(value) if isinstance(value, bytes) else value)
