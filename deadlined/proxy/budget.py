"""How many requests may be sent again: a share of all requests, so that retries end when an upstream is overloaded.

Facts      A request that failed may succeed at another upstream. Where each is tried three times, an upstream that
           fails because of its load gets three times the load.
Hazard     Retries keep the overload alive that has caused them.
Answer     Each request pays a share of a retry into an account, and each retry takes a whole one from it. There is no
           clock: what limits retries is the number of requests, whatever their rate. A proxy begins with a reserve, for
           the first failures of a quiet one. The account holds the reserve at most, or little more than one retry:
           hours without failures do not save up retries for an outage.
Cost       An addition and a comparison per request.
"""

from __future__ import annotations

from math import inf
from typing import Final

__all__ = ["RetryBudget"]

# The account is counted in whole parts of a retry: sums of floats would drift, and 5 x 0.2 might not be 1
_PARTS: Final = 1_000_000


class RetryBudget:
    """A budget for retries. ValueError for a negative number, `inf` or NaN.

    `ratio`: retries per request in the long run, from 0 on, rounded down to a millionth. `reserve`: retries that are
    there at the beginning. There are never more than `reserve`, or 1 + `ratio` if that is more: then what is less than
    a retry is not lost.
    """

    __slots__ = ("_left", "_most", "_share")

    def __init__(self, ratio: float = 0.2, reserve: float = 10.0) -> None:
        if not 0 <= ratio < inf or not 0 <= reserve < inf:
            raise ValueError(f"ratio and reserve must be finite and at least 0, not {ratio!r} and {reserve!r}")
        self._share: Final = _parts(ratio)
        self._left = _parts(reserve)
        self._most: Final = max(self._left, _PARTS + self._share)

    def deposit(self) -> None:
        """Count a request. Its retries are not counted again."""
        self._left = min(self._left + self._share, self._most)

    def withdraw(self) -> bool:
        """Take one retry. Return False, and take nothing, if there is less than one."""
        if self._left < _PARTS:
            return False
        self._left -= _PARTS
        return True


def _parts(retries: float) -> int:
    """Return the parts of a retry, rounded down. A float may lack a little: 0.29 of a million is just below 290000."""
    return int(retries * _PARTS + 0.001)
