"""The share of the two cores that other processes used during a measurement.

Facts      /proc/stat counts how long each core was busy, in ticks of 10 ms; stolen time is the hypervisor's.
Hazard     Other load changes rates, and the figures do not show it.
Answer     The share that neither the server nor its client used is reported beside the figures. A measurement beside
           more than LOUD per cent of other load is repeated.
Cost       A resolution of about a per cent in two seconds.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..servers import Usage
from .processes import CLIENT_CORE, SERVER_CORE

# fields of a line of /proc/stat: idle and iowait are not busy; guests are already counted in user time
_IDLE = (3, 4)
_COUNTED = 8


# per cent of both cores; more changes a rate by more than the differences that are measured
LOUD: Final = 5.0
TRIES: Final = 4


@dataclass
class Neighbours:
    """The load of other processes. `share`: per cent of both cores; set at the end of the block."""

    share: float = 0.0


@contextmanager
def neighbours(pid: int) -> Iterator[Neighbours]:
    """Measure the load beside the server `pid` and the clients, which are children that end inside the block."""
    found = Neighbours()
    began, busy, ours = time.monotonic(), _busy(), _ours(pid)
    yield found
    took, busy, ours = time.monotonic() - began, _busy() - busy, _ours(pid) - ours
    found.share = max(0.0, busy - ours) / (2 * took) * 100


def in_quiet(measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Call `measure` up to TRIES times; return the first figures whose `others` is at most LOUD, else the quietest."""
    quietest = measure()
    for _ in range(TRIES - 1):
        if quietest["others"] <= LOUD:
            break
        quietest = min(quietest, measure(), key=lambda found: found["others"])
    return quietest


def _busy() -> float:
    """Return the seconds that the two cores have been busy so far."""
    names = {f"cpu{SERVER_CORE}", f"cpu{CLIENT_CORE}"}
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in names:
            ticks += sum(int(field) for place, field in enumerate(fields[:_COUNTED]) if place not in _IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def _ours(pid: int) -> float:
    """Return the CPU seconds of the server, of the clients that have ended, and of this process."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return Usage.of(pid).cpu + sum(usage.ru_utime + usage.ru_stime for usage in spent)
