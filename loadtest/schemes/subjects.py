"""The measured queues and their theory: the paper's orders, and the code's orders where they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from deadlined.timers import SCHEMES, Timer, Timers

from .baselines import Alarm, LazyHeapq

CONSTANT: Final = "O(1)"
LOGARITHMIC: Final = "O(log n)"
LINEAR: Final = "O(n)"

START: Final = "START"
STOP: Final = "STOP"
CHECK: Final = "check"
EXTRACT: Final = "extract"

Callback = Callable[[Any, int, float], object]


class Queue(Protocol):
    """The common interface of `Timers` and the baseline. A timer of one cannot be used with the other."""

    def __len__(self) -> int: ...

    def modify(self, timer: Any, when: float, period: float = 0.0, /) -> object:
        """Start or move a timer."""

    def stop(self, timer: Any, /) -> object:
        """Cancel a timer."""

    def check(self, now: float, /) -> float:
        """Run what is due, and return the next wake time."""

    def wake_time(self) -> float:
        """Return the earliest time at which `check` may have work."""


@dataclass(frozen=True)
class Subject:
    """A timer queue.

    `paper`: the order of each operation in the literature. `here`: the order of the measured code where it differs.
    """

    name: str
    queue: Callable[[], Queue]
    timer: Callable[[Callback], Any]
    paper: Mapping[str, str]
    here: Mapping[str, str] = field(default_factory=dict)

    def theory(self, operation: str) -> str:
        """Return the theory as text: "O(n); here O(1)"."""
        paper, here = self.paper[operation], self.here.get(operation)
        return paper if here is None else f"{paper}; here {here}"


def _orders(start: str, stop: str, check: str, extract: str) -> dict[str, str]:
    return {START: start, STOP: stop, CHECK: check, EXTRACT: extract}


_WHEEL = _orders(CONSTANT, CONSTANT, CONSTANT, CONSTANT)
_HEAP = _orders(LOGARITHMIC, LOGARITHMIC, CONSTANT, LOGARITHMIC)
# for all schemes `Timers` marks a stopped timer, and sweeps after every n/4 stops
_LAZY = {STOP: CONSTANT}

_PAPER: Final[Mapping[str, Mapping[str, str]]] = {
    "heap4": _orders(LOGARITHMIC, CONSTANT, CONSTANT, LOGARITHMIC),
    "heap2": _HEAP,
    "tree": _HEAP,
    "sorted": _orders(LINEAR, CONSTANT, CONSTANT, CONSTANT),
    "unsorted": _orders(CONSTANT, CONSTANT, LINEAR, LINEAR),
    "wheel": _WHEEL,
    "hashed": _WHEEL,
    "hierarchical": _WHEEL,
    "kernel": _WHEEL,
}

_HERE: Final[Mapping[str, Mapping[str, str]]] = {
    "heap2": _LAZY,
    # it remembers its earliest timer: a check scans all only after that one has left
    "unsorted": {CHECK: CONSTANT},
}


def _ours(scheme: str) -> Subject:
    return Subject(scheme, partial(Timers, scheme), Timer, _PAPER[scheme], _HERE.get(scheme, {}))


SUBJECTS: Final[Mapping[str, Subject]] = {
    **{scheme: _ours(scheme) for scheme in _PAPER if scheme in SCHEMES},
    "heapq, lazy": Subject(
        "heapq, lazy", LazyHeapq, Alarm, _orders(LOGARITHMIC, CONSTANT, CONSTANT, LOGARITHMIC)
    ),
}  # fmt: skip
