"""What must hold of a run: `--fail-if 'p99>50ms'`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt

# what can be asked for: percentiles in ms, a number of errors or their part, and a rate per second
PERCENTILES = ("p50", "p90", "p99", "p99.9", "p99.99", "max")
METRICS = (*PERCENTILES, "errors", "rate")

_UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_COMPARED: dict[str, Callable[[float, float], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}
_FORM = re.compile(r"\s*(p\d+(?:\.\d+)?|max|errors|rate)\s*(>=|<=|>|<)\s*(\d+(?:\.\d+)?)\s*(us|ms|s|%)?\s*")


@dataclass(frozen=True)
class Condition:
    """A comparison that fails a run if it is true. `limit` is in ms for percentiles, 0 to 1 for a part of errors."""

    text: str
    metric: str
    compare: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Return the condition. ValueError says what is wrong with the text."""
        found = _FORM.fullmatch(text)
        if found is None or found[1] not in METRICS:
            raise ValueError(f"{text!r} is no condition like 'p99>50ms', 'errors>0.1%' or 'rate<900'; metrics: "
                             f"{', '.join(METRICS)}")  # fmt: skip
        metric, compare, number, unit = found.groups()
        scale = 1.0
        if metric in PERCENTILES:
            if unit not in _UNITS:
                raise ValueError(f"{text!r}: give {metric} with a unit: us, ms or s")
            scale = _UNITS[unit]
        elif metric == "errors" and unit == "%":
            metric, scale = "error part", 0.01
        elif unit is not None:
            raise ValueError(f"{text!r}: {metric} has no unit {unit}")
        return cls(text.strip(), metric, compare, float(number) * scale)

    def true_of(self, figures: Mapping[str, float]) -> bool:
        """Tell if a run with these figures fails."""
        return _COMPARED[self.compare](figures[self.metric], self.limit)
