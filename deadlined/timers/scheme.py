"""The protocol behind which every timer scheme stands: file a timer at a key, show the earliest, take it out.

A scheme knows nothing of lazy extension, periods or callbacks; `Timers` does those once, above all schemes. It keeps
`timer.key` and `timer.index` true for the timers it holds, and orders equal keys by `timer.order`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from .timer import Timer


class Scheme(ABC):
    """A set of timers ordered by `(key, order)`. Each timer is stored at most once."""

    @abstractmethod
    def __len__(self) -> int:
        """How many timers are stored, zombies included."""

    @abstractmethod
    def wake_time(self) -> float:
        """The earliest key, `inf` if nothing is stored."""

    @abstractmethod
    def first(self) -> Timer:
        """The timer with the smallest `(key, order)`. Only when something is stored."""

    @abstractmethod
    def file(self, timer: Timer, key: float) -> None:
        """Store `timer` at `key` (finite), or move it there, earlier or later, if it is stored already."""

    @abstractmethod
    def remove_first(self) -> Timer:
        """Take out what `first` returns and leave it with `key` inf and `index` -1."""

    @abstractmethod
    def sweep(self) -> int:
        """Take out every zombie; return how many there were."""

    @abstractmethod
    def clear(self) -> list[Timer]:
        """Take out and return everything stored, zombies included, in no particular order."""
