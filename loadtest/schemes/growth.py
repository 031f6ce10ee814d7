"""The growth of a cost with the number of timers: a measured slope, and one of three orders.

Facts      On a double logarithmic scale O(n) is a line of slope 1 and O(1) one of slope 0. O(log n) is not a line: its
           slope falls from 0.3 to 0.1 between ten timers and a million.
Hazard     By slope alone "1 us and n/2 ns" looks like something in between, and a model with more terms always fits
           better.
Answer     Each order is fitted as a + b*f(n), with a and b not negative, by least squares of the relative error, so
           that every decade counts the same. The simplest order that fits nearly as well as the best is reported. O(n)
           must also show in the last step, because the end of a cache fits it as well.
Cost       A million timers fit no cache. What an O(1) operation loses there looks like log n and is reported as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression
from typing import Final

CONSTANT: Final = "O(1)"
LOGARITHMIC: Final = "O(log n)"
LINEAR: Final = "O(n)"

# from the simplest to the steepest
ORDERS: Final[Mapping[str, Callable[[float], float]]] = {
    CONSTANT: lambda n: 0.0,
    LOGARITHMIC: math.log2,
    LINEAR: lambda n: n,
}

# a relative error up to which no steeper order is considered: two measurements of the same differ by as much
NOISE: Final = 0.15
# an error up to this multiple of the least error is as good as the least
NEARLY: Final = 1.15

# the slope between the last two sizes from which on a cost is linear
STEEP: Final = 0.7

# a relative error above which an order is only a rough description
ROUGH: Final = 0.25

# fewer sizes show no growth
LEAST_SIZES: Final = 3


@dataclass(frozen=True)
class Growth:
    """The `slope` of log cost against log n, the `order` that fits, and the relative errors of the possible orders."""

    slope: float
    order: str
    errors: Mapping[str, float]

    @property
    def label(self) -> str:
        """The order as tables show it: "about O(1)" where the fit is rough."""
        return f"about {self.order}" if self.errors[self.order] > ROUGH else self.order


def growth(costs: Mapping[int, float]) -> Growth | None:
    """Fit costs by ascending number of timers; None for fewer than three sizes. All costs must be positive."""
    if len(costs) < LEAST_SIZES:
        return None
    sizes = [float(n) for n in costs]
    values = list(costs.values())
    errors = {order: _error(sizes, values, shape) for order, shape in ORDERS.items()}
    if _slope(sizes[-2:], values[-2:]) < STEEP:
        del errors[LINEAR]
    enough = max(NOISE, NEARLY * min(errors.values()))
    order = next(order for order, error in errors.items() if error <= enough)
    return Growth(_slope(sizes, values), order, errors)


def _slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    return linear_regression([math.log(n) for n in sizes], [math.log(value) for value in values]).slope


def _error(sizes: Sequence[float], values: Sequence[float], shape: Callable[[float], float]) -> float:
    """Return the root mean square of the relative errors of the best a + b*f(n), with a and b not negative."""
    from scipy.optimize import nnls  # type: ignore[import-untyped,unused-ignore]  # not for measured processes

    # a/y + b*f/y is to be 1
    rows = [(1.0 / value, shape(n) / value) for n, value in zip(sizes, values, strict=True)]
    _, error = nnls(rows, [1.0] * len(rows))
    return float(error) / math.sqrt(len(rows))
