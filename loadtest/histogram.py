"""Histograms of times, in microseconds with three digits (hdrhistogram), and counts of which they are a part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, ClassVar, TypeVar

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


def shown(found: dict[str, float | None], digits: int = 1) -> str:
    """Return percentiles in milliseconds as a line of text."""
    return "  ".join(f"{name} {'-' if value is None else f'{value:.{digits}f} ms'}" for name, value in found.items())


@dataclass
class Tally:
    """What one process has counted: numbers, counters and histograms. It can be sent to another process, and added.

    `errors` by kind. `latency` of requests, `late`: how late this client was to act; both in microseconds. `seconds`
    from the start to the end; `busy`: the part of them in which it used a processor or waited for one. `largest`:
    names of which the largest counts, not the sum.
    """

    largest: ClassVar = frozenset({"seconds", "busy", "interrupted"})

    errors: Counter[str] = field(default_factory=Counter)
    latency: HdrHistogram = field(default_factory=histogram)
    late: HdrHistogram = field(default_factory=histogram)
    seconds: float = 0.0
    busy: float = 0.0
    interrupted: bool = False

    def ended(self, start: float, worked: float) -> None:
        """Note the time since `start`, and how many seconds of it the client has `worked` (loop.py)."""
        self.seconds = max(monotonic() - start, 1e-9)
        self.busy = worked / self.seconds

    @property
    def late_ms(self) -> float:
        """The 99th percentile of how late the client was, in milliseconds."""
        return milliseconds(self.late)["p99"] or 0.0

    def add(self, other: Tally) -> None:
        """Add what another process has counted."""
        for name, theirs in vars(other).items():
            mine = getattr(self, name)
            if isinstance(mine, HdrHistogram):
                mine.add(theirs)
            elif isinstance(mine, Counter):
                mine.update(theirs)
            else:
                setattr(self, name, max(mine, theirs) if name in self.largest else mine + theirs)

    def __getstate__(self) -> dict[str, Any]:
        # the library's histograms go encoded only
        return {name: value.encode() if isinstance(value, HdrHistogram) else value
                for name, value in vars(self).items()}  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        # nothing else that is counted is bytes
        for name, value in state.items():
            setattr(self, name, HdrHistogram.decode(value) if isinstance(value, bytes) else value)


AnyTally = TypeVar("AnyTally", bound=Tally)


def together(counted: Iterable[AnyTally]) -> AnyTally:
    """Return the counts of several processes as one: the first, to which the others are added."""
    first, *others = counted
    for other in others:
        first.add(other)
    return first
