"""The share of the two cores that other processes used during a measurement.

Facts      /proc/stat counts how long each core was busy, in ticks of 10 ms; stolen time is the hypervisor's.
Hazard     Other load changes rates, and the figures do not show it.
Answer     The share that neither the server nor its client used is reported beside the figures. A measurement beside
           more than LOUD per cent of other load is repeated.
Cost       A resolution of about a per cent in two seconds.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import psutil  # type: ignore[import-untyped,unused-ignore]

from ..servers import Usage
from .processes import CLIENT_CORE, SERVER_CORE

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
    """Return the seconds that the two cores have been busy so far. Guests are already counted in user time."""
    cores = psutil.cpu_times(percpu=True)
    times = [cores[core] for core in {SERVER_CORE, CLIENT_CORE} if core < len(cores)]
    return float(sum(one.user + one.nice + one.system + one.irq + one.softirq + one.steal for one in times))


def _ours(pid: int) -> float:
    """Return the CPU seconds of the server, of the clients that have ended, and of this process."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return Usage.of(pid).cpu + sum(usage.ru_utime + usage.ru_stime for usage in spent)
