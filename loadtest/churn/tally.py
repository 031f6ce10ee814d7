"""What the connections of one process saw: counts, and histograms of microseconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped,unused-ignore]

from .. import histogram


@dataclass
class Tally(histogram.Tally):
    """The counts of a run.

    `opened`: connections that were established, `most` of them at once. `cut`: by the server while they were silent, by
    how it ended them; `early` of these before their deadline, `early_by` seconds at most; `overdue`: silent for so much
    longer than the deadline that this client closed them. `lost`: requests that were sent before the deadline, and
    answered by a cut; `raced`: the same when the client had spoken too late. `announced`: ended by the server with a
    response that said so. `closed` and `reset`: by this client. `lateness` of cuts after their deadline, `wrong`: the
    largest error of the client's clock for each cut. `stopped`: why the client ended the run early, "" if it did not.
    """

    largest: ClassVar = histogram.Tally.largest | {"early_by", "stopped"}

    opened: int = 0
    most: int = 0
    requests: int = 0
    answered: Counter[int] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)
    early: int = 0
    early_by: float = 0.0
    overdue: int = 0
    lost: int = 0
    raced: int = 0
    announced: int = 0
    closed: int = 0
    reset: int = 0
    received: int = 0
    lateness: HdrHistogram = field(default_factory=histogram.histogram)
    wrong: HdrHistogram = field(default_factory=histogram.histogram)
    stopped: str = ""
