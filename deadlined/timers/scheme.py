"""The protocol behind which every timer scheme stands: file a timer at a key, show the earliest, take it out.

A scheme knows nothing of lazy extension, periods or callbacks; `Timers` does those once, above all schemes. It keeps
`timer.key` true for the timers it holds, and writes `timer.index` and `timer.slot` as it likes; outside of it they are
inf, -1 and -1. It reads no clock: `due(now)` is the only call that tells it the time.

The rules of time and order, for all schemes: what one check finds due comes out by `(key, order)`. No timer is found
due before its key. A scheme may find one due late: by less than `granularity` seconds plus `coarseness` times its
delay, which runs from the first `due` after its filing to its key. Both are 0 for an exact scheme.
"""

from __future__ import annotations

from abc import abstractmethod

from .timer import INF, Timer


class Scheme:
    """A set of timers, each stored at most once.

    Abstract for type checkers only: compiled by mypyc, an ABC and its subclasses would share one cache of `isinstance`.
    """

    __slots__ = ("coarseness", "granularity", "wakes_early")

    def __init__(self, granularity: float = 0.0, coarseness: float = 0.0, wakes_early: bool = False) -> None:
        self.granularity: float = granularity
        self.coarseness: float = coarseness
        # whether `wake_time` may lie before the key of every stored timer
        self.wakes_early: bool = wakes_early

    @abstractmethod
    def __len__(self) -> int:
        """Return how many timers are stored, zombies included."""

    @abstractmethod
    def wake_time(self) -> float:
        """Return the earliest time at which `due` may have work, `inf` if nothing is stored.

        At that time at the latest, some timer is due, or the queue comes closer to finding it: a sleeper that wakes
        then, again and again, finds every timer within its lateness, and after few wakes.
        """

    @abstractmethod
    def first(self) -> Timer:
        """Return a timer that `wake_time` is for. Only when something is stored."""

    @abstractmethod
    def due(self, now: float) -> Timer | None:
        """Return the timer with the smallest `(key, order)` of those found due at `now`; None if there is none.

        Until the queue is changed, `first` returns the same one.
        """

    @abstractmethod
    def file(self, timer: Timer, key: float) -> None:
        """Store `timer` at `key` (less than inf).

        If it is stored already, move it there: earlier; or, if `due` has just returned it, later.
        """

    @abstractmethod
    def remove_first(self) -> Timer:
        """Take out what `first` returns and leave it with `key` inf, `index` -1 and `slot` -1."""

    @abstractmethod
    def sweep(self) -> int:
        """Take out every zombie; return how many there were."""

    @abstractmethod
    def clear(self) -> list[Timer]:
        """Take out and return everything stored, zombies included, in no particular order, as `remove_first` does."""


def unfile(timers: list[Timer]) -> None:
    """Mark timers that were taken out of a scheme without bags as stored nowhere."""
    for timer in timers:
        timer.key = INF
        timer.index = -1
