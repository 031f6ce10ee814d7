"""wrk, the client of the HTTP benchmarks, and its output."""

from __future__ import annotations

import re
import resource
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from ..servers import tool
from . import processes
from .contest import ContestantError

_DONE: Final = re.compile(r"^\s*(\d+) requests in ([\d.]+)(us|ms|s|m),", re.MULTILINE)
_LATENCY: Final = re.compile(r"^\s*(50|99)%\s+([\d.]+)(us|ms|s|m)$", re.MULTILINE)
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
# wrk prints these lines only if there were errors
_TROUBLE: Final = re.compile(r"^\s*(Non-2xx.*|Socket errors:.*)$", re.MULTILINE)

# seconds that wrk may take beyond its duration
_PATIENCE: Final = 30.0


@dataclass(frozen=True)
class Requests:
    """The number of answered requests, the seconds they took, and the latency in seconds. `wakes`: how often wrk has
    slept until something came."""

    number: int
    seconds: float
    p50: float = 0.0
    p99: float = 0.0
    wakes: int = 0

    @classmethod
    def parse(cls, output: str) -> Self:
        """Parse wrk's output. ContestantError if it reports any error, because the figure would mean nothing."""
        done, trouble = _DONE.search(output), _TROUBLE.findall(output)
        if done is None or trouble or done[1] == "0":
            raise ContestantError(f"{'; '.join(trouble) or 'wrk counted nothing'}\n{output}")
        latencies = {percent: float(value) * _SECONDS[unit] for percent, value, unit in _LATENCY.findall(output)}
        seconds = float(done[2]) * _SECONDS[done[3]]
        return cls(int(done[1]), seconds, latencies.get("50", 0.0), latencies.get("99", 0.0))


def load(url: str, connections: int, seconds: int, options: Sequence[str] = ()) -> Requests:
    """Request `url` repeatedly for `seconds`, from a core of its own."""
    command = [tool("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "5s", *options, url]
    before = _slept()
    printed, _ = processes.output(command, core=processes.CLIENT_CORE, seconds=seconds + _PATIENCE)
    return replace(Requests.parse(printed), wakes=_slept() - before)


def _slept() -> int:
    """Return the voluntary context switches of the children that have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw
