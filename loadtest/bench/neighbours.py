"""How much of the two cores went to others while something was measured.

Facts      /proc/stat counts how long each core was busy, in ticks of 10 ms; stolen time is the hypervisor's.
Hazard     On a machine that does something else as well, rates are that something's, and look like any others.
Answer     Whatever neither the server nor its client used is told beside the figures. What was measured beside loud
           ones is measured again, whoever it was.
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

# fields of a line of /proc/stat: idle and waiting for a disk are not busy; guests are counted in user time already
_IDLE = (3, 4)
_COUNTED = 8


# per cent of both cores: more than that moves a rate by more than what is to be found out
LOUD: Final = 5.0
TRIES: Final = 4


@dataclass
class Neighbours:
    """`share`: of both cores, in per cent; known at the end."""

    share: float = 0.0


@contextmanager
def neighbours(pid: int) -> Iterator[Neighbours]:
    """Watch while the server `pid` and clients, children of this process that end meanwhile, have the cores."""
    found = Neighbours()
    began, busy, ours = time.monotonic(), _busy(), _ours(pid)
    yield found
    took, busy, ours = time.monotonic() - began, _busy() - busy, _ours(pid) - ours
    found.share = max(0.0, busy - ours) / (2 * took) * 100


def in_quiet(measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """What `measure()` finds, and the share of `others` beside it; of at most `TRIES` the first that is not disturbed,
    or else the one that is least."""
    quietest = measure()
    for _ in range(TRIES - 1):
        if quietest["others"] <= LOUD:
            break
        quietest = min(quietest, measure(), key=lambda found: found["others"])
    return quietest


def _busy() -> float:
    """Seconds that the two cores have been busy so far."""
    names = {f"cpu{SERVER_CORE}", f"cpu{CLIENT_CORE}"}
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in names:
            ticks += sum(int(field) for place, field in enumerate(fields[:_COUNTED]) if place not in _IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def _ours(pid: int) -> float:
    """CPU seconds of the server, of the clients that have ended, and of this process."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return Usage.of(pid).cpu + sum(usage.ru_utime + usage.ru_stime for usage in spent)
