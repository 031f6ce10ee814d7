"""When Python's cyclic garbage collector runs in a serving process.

Facts      A collection visits every object of its generation and of younger ones, and connections consist of objects:
           with 15,000 open, full collections took up to 140 ms. A request leaves next to no cycles behind unless its
           application does: an exception that is kept in a local variable keeps its frame, and all that the frame
           refers to.
Hazard     Deadlines that come during a collection are late. Python counts objects, not bytes: 800 requests whose cycles
           keep a body of 1 MB each are few objects and 800 MB. Most frameworks leave the async generators of a handler
           that was cut short as garbage. Until one is closed it keeps what it holds: a connection of a database's pool
           that all other requests wait for.
Answer     What exists before the first connection is never visited again. The youngest generation is collected after
           tens of thousands of new objects instead of hundreds; or when the process has grown by GROWTH since the last
           collection, and older ones only if it is still larger than theirs allows. Freed memory is given back to the
           system: memory that the allocator keeps would hide the garbage that fills it (and let it grow without end).
           Soon after a handler was cut short everything is collected, for at most one part in SHARE of the time.
Cost       Reading the size of the process once in EVERY requests, and at most once in PERIOD. Garbage of GROWTH[0], of
           EVERY requests and of PERIOD stays for a while. What was still in use when it was visited belongs to an older
           generation then, and stays, once it is garbage, until the process has grown by GROWTH[1] or GROWTH[2].
"""

from __future__ import annotations

import gc
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ...timing import after_func
from .allocator import trimmer

_Request = TypeVar("_Request")
_Result = TypeVar("_Result")

# new objects that still exist; Python's own 700 is less than 64 connections make in one turn of the event loop
_OBJECTS = 50_000

# collections of one generation before the next older one is collected too
_GENERATIONS = 50

# bytes by which the process may grow before each generation is collected, the youngest first; 15,000 connections are 40
# MB, and visiting them takes 25 ms
GROWTH = (16 << 20, 48 << 20, 96 << 20)

# requests, and seconds, between two readings of the size; one takes 3 us, a fifth of what a small request takes. In a
# millisecond no application makes much garbage
EVERY = 8
PERIOD = 0.001

# seconds from the end of a handler that was cut short until everything is collected: other handlers are likely to be
# cut at about the same time
AFTER = 1.0

# seconds between two such collections, for each second that one takes
SHARE = 100

_PAGE = resource.getpagesize()

# the size of this process in pages
_STATM = "/proc/self/statm"


def tune_gc() -> None:
    """Exempt all that exists now from collection, and raise the thresholds. Call this once, when all that stays was
    made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS, _GENERATIONS, _GENERATIONS)


class GarbageWatch:
    """Collects garbage when the process has grown.

    `resident` returns the size of the process in bytes, `collect(generation)` collects, and `trim` gives freed memory
    back to the system. `later(seconds, function)` must call the function once, after `seconds`, and
    `clock()` returns seconds.
    """

    def __init__(
        self,
        resident: Callable[[], int],
        collect: Callable[[int], object],
        trim: Callable[[], object],
        later: Callable[[float, Callable[[], object]], object],
        clock: Callable[[], float],
    ) -> None:
        self._resident = resident
        self._collect = collect
        self._trim = trim
        self._later = later
        self._clock = clock
        # `_collect_all` will be called
        self._due = False
        # seconds from the next `note_cut` until it is called
        self._pause = AFTER
        self._requests = 0
        self._next_check = -math.inf
        self._limits = [_limit(generation, resident()) for generation in range(len(GROWTH))]

    def watching(self, handler: Callable[[_Request], _Result]) -> Callable[[_Request], _Result]:
        """Return a handler that calls `handler`, and `check` before one call in EVERY, unless it was called less than
        PERIOD ago."""

        def watched(request: _Request) -> _Result:
            self._requests += 1
            if self._requests == EVERY:
                self._requests = 0
                now = self._clock()
                if now >= self._next_check:
                    self._next_check = now + PERIOD
                    self.check()
            return handler(request)

        return watched

    def check(self) -> None:
        """Collect each generation whose limit the process exceeds, the youngest first; stop at one that it does not."""
        for generation in range(len(GROWTH)):
            if self._resident() <= self._limits[generation]:
                return
            self._collect(generation)
            self._trim()
            self._move_limits(generation)

    def note_cut(self) -> None:
        """Collect everything soon, because a handler was cut short, or one that was upgraded has ended."""
        if not self._due:
            self._due = True
            self._later(self._pause, self._collect_all)

    def end(self) -> None:
        """Do now what `note_cut` has planned, because the application is about to end: what its handlers hold must be
        free by then."""
        if self._due:
            self._collect_all()

    def _collect_all(self) -> None:
        if not self._due:
            return
        self._due = False
        began = self._clock()
        self._collect(len(GROWTH) - 1)
        self._pause = max(AFTER, SHARE * (self._clock() - began))

    def _move_limits(self, collected: int) -> None:
        size = self._resident()
        for generation, limit in enumerate(self._limits):
            fresh = _limit(generation, size)
            # the limit of an older generation does not rise before that is collected
            self._limits[generation] = fresh if generation <= collected else min(limit, fresh)


@contextmanager
def watch_garbage() -> Iterator[GarbageWatch]:
    """Give a GarbageWatch of this process, for one block."""
    with _resident() as resident:
        yield GarbageWatch(resident, gc.collect, trimmer(), after_func, time.perf_counter)


@contextmanager
def _resident() -> Iterator[Callable[[], int]]:
    """Give a function that returns the size of this process in bytes, for one block: its largest size so far where
    there is no /proc, as on macOS and in some jails."""
    try:
        statm = open(_STATM, "rb", buffering=0)  # noqa: PTH123, SIM115, Path.open would buffer; closed below
    except OSError:
        statm = None
    if statm is None:
        yield _largest
        return
    with statm:
        fd = statm.fileno()
        yield lambda: int(os.pread(fd, 128, 0).split()[1]) * _PAGE


def _largest() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _limit(generation: int, size: int) -> int:
    # at least by a half before everything is visited: a process of 10 GB is not visited for each 96 MB that it grows
    return size + max(GROWTH[generation], size // 2 if generation == len(GROWTH) - 1 else 0)
