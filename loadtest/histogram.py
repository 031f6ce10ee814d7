"""Histograms of times, in microseconds with three digits (hdrhistogram), and counts, which tell if they are valid."""

from __future__ import annotations

import copyreg
import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import ClassVar, Self, TypeVar

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped,unused-ignore]

from .target import NO_PORTS, lacks_ports

# microseconds; an hour
_LONGEST = 3_600_000_000
# A request that this client was late to notice says something of the client. One in a hundred may be late by so many
# ms, which a busy machine does to any process, or by this part of the server's median.
LATE_MS, LATE_PART = 20.0, 0.25
# the part of the time that a client may use a processor or wait for one: above it the next request waits for the client
BUSY = 0.95
# seconds: in a shorter run it means nothing that the client had work
_SHORTEST = 0.1

# the library's histograms go to another process encoded only
copyreg.pickle(HdrHistogram, lambda one: (HdrHistogram.decode, (one.encode(),)))


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
        self.busy = worked / max(self.seconds, _SHORTEST)

    @property
    def late_ms(self) -> float:
        """The 99th percentile of how late the client was, in milliseconds."""
        return milliseconds(self.late)["p99"] or 0.0

    @property
    def invalid(self) -> str:
        """Say why the figures are the client's; "" if they are the server's."""
        if lacks_ports(self.errors):
            return NO_PORTS
        if self.busy > BUSY:
            busy = f"a client process had work for {self.busy:.0%} of the time"
            return f"{busy}: ask for less, or give more --processes or processors"
        if self.late_ms > max(LATE_MS, LATE_PART * (milliseconds(self.latency)["p50"] or 0.0)):
            late = f"the client itself was late, by {self.late_ms:.1f} ms"
            return f"{late} for one request in a hundred: it had no processor"
        return ""

    def add(self, other: Self) -> Self:
        """Add what another process has counted, and return this."""
        for name, theirs in vars(other).items():
            mine = getattr(self, name)
            if isinstance(mine, HdrHistogram):
                mine.add(theirs)
            elif isinstance(mine, Counter):
                mine.update(theirs)
            else:
                setattr(self, name, max(mine, theirs) if name in self.largest else mine + theirs)
        return self


AnyTally = TypeVar("AnyTally", bound=Tally)


def together(counted: Iterable[AnyTally]) -> AnyTally:
    """Return the counts of several processes as one: the first, to which the others are added."""
    return functools.reduce(lambda first, other: first.add(other), counted)
