"""The measured queues: all of `deadlined.timers`, and a baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from deadlined.timers import SCHEMES, Timer, Timers

from .baseline import Alarm, Callback, LazyHeapq


class Subject(NamedTuple):
    """A measured queue: how one is made, and how a timer for it."""

    queue: Callable[[], Timers | LazyHeapq]
    timer: Callable[[Callback], Any]


SUBJECTS: Final[Mapping[str, Subject]] = {
    **{scheme: Subject(partial(Timers, scheme), Timer) for scheme in SCHEMES},
    "heapq, lazy": Subject(LazyHeapq, Alarm),
}
