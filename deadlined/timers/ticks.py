"""Seconds and ticks: the only place where one becomes the other.

Facts      A float divided by, or an integer multiplied with, a power of two is exact as long as it fits 53 bits.
Hazard     With a tick of 0.001 seconds neither is: a wheel would fire a timer a hair early, or wake a hair before its
           slot, find nothing due, and spin.
Answer     A tick is a power of two. Then only the two roundings to a whole tick round, and each says which way: by
           looking back, because a coarse tick divides the smallest floats to zero. What does not fit 52 bits has no
           tick.
Cost       "A millisecond" is 1/1024 of a second.
"""

from __future__ import annotations

import math
from typing import Final

TICK: Final = 2.0**-10  # seconds, a little less than a millisecond: finer than epoll_wait sleeps

# beyond it a float has no bits left for single ticks; at the default tick, 139,000 years
FURTHEST: Final = 2**52
NEVER: Final = 2**60  # later than any tick


def check_tick(tick: float) -> float:
    """Return `tick`, in seconds. ValueError unless it is a power of two such as 1/1024, 0.25 or 1."""
    if not 0.0 < tick < math.inf or math.frexp(tick)[0] != 0.5:
        raise ValueError(f"a tick must be a power of two in seconds, such as 1/1024, not {tick!r}")
    return tick


def has_tick(when: float, tick: float) -> bool:
    """Return whether `when` is near enough to zero for a float to tell one tick from the next."""
    return -FURTHEST * tick < when < FURTHEST * tick


def tick_from(when: float, tick: float) -> int:
    """Return the first tick at or after `when`, which has a tick: rounded up, so that nothing fires early."""
    number = math.ceil(when / tick)
    return number + 1 if number * tick < when else number


def tick_until(now: float, tick: float) -> int:
    """Return the last tick that has come at `now`: rounded down, and cut at both ends of the range."""
    if now >= FURTHEST * tick:
        return FURTHEST
    if now <= -FURTHEST * tick:
        return -FURTHEST
    number = math.floor(now / tick)
    return number - 1 if number * tick > now else number


def time_of(number: int, tick: float) -> float:
    """Return the time of tick `number`; `inf` for NEVER."""
    return number * tick if number < NEVER else math.inf
