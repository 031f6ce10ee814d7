"""The lateness of timers, and the cost of a 1 ms ticker (golang/go#27707): the benchmarks `lateness` and `precision`.

Facts      Python's epoll counts in milliseconds and rounds up: a timer fires up to one late. Beside a busy loop the
           scheduler decides, in slices of a few milliseconds.
Hazard     A loop that rounds the other way is punctual on average and early half of the time.
Answer     The quantiles of all timers, and the share of early ones. A ticker's cost is its share of a core, shown with
           the share of the ticks that it skipped, because skipping is cheap.
Cost       For a peer without timers that call a function (trio, connections), a task waits for each.

`lateness` has 10,000 timers within a second, `precision` 500, but in a CPU quota, too (situations.py). Every process
runs on core 0; the busy loop is a second process there. The pictures are drawn from 103 quantiles, which the results
keep.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import deadlined

from ..servers import raise_file_limit
from . import builds, golang
from .contest import Benchmark, Contestant, Metric, Target
from .processes import Pressure, run
from .results import Results
from .situations import busy_core, idle_core, quota

TRIO: Final = "trio sleep_until"
ASYNCIO: Final = "asyncio call_at"
UVLOOP: Final = "uvloop call_at"
THREADING: Final = "threading.Timer"
GO: Final = "Go AfterFunc"
# the suffixes of ours, beside `after_func`
CONN: Final = ", Conn"
PRECISE: Final = ", precise"
SLEEP: Final = ", sleep_until"
THREAD: Final = ", TimerThread"

TICKER: Final = "1 ms ticker"

_PERIOD: Final = 0.001
# the environment variable that makes the pump wake more finely than a millisecond
_SWITCH: Final = "DEADLINED_PRECISE"
# one thread per timer: more would measure the machine's limit of threads
_THREADS: Final = 100


class Lateness(Benchmark):
    """The benchmark `lateness`. `timers` within `spread` seconds, and a ticker for `seconds`."""

    name = "lateness"
    columns = 6
    metrics: Mapping[str, Metric] = {
        "p50": Metric("ms", "less"),
        "p90": Metric("ms", "less"),
        "p99": Metric("ms", "less"),
        "p99.9": Metric("ms", "less"),
        "max": Metric("ms", "less"),
        "early": Metric("%", "less"),
        "CPU": Metric("%", "less"),
        "ticks skipped": Metric("%", "less"),
    }

    def __init__(self, timers: int = 10_000, spread: float = 1.0, seconds: float = 4.0) -> None:
        self.timers = timers
        self.spread = spread
        self.seconds = seconds
        self.idle = f"{timers:,} timers, idle machine"
        self.busy = f"{timers:,} timers, beside a busy loop"
        # what disturbs the timers, by case
        self.pressures: dict[str, Pressure] = {self.idle: idle_core, self.busy: busy_core}
        self.title = f"Lateness of {timers:,} timers within {spread:g} s, and a ticker of 1 ms"
        self.targets: Sequence[Target] = self._targets()
        # for each contestant and case the quantiles in seconds, repetition by repetition
        self.curves: dict[tuple[str, str], list[dict[str, float]]] = {}

    def _targets(self) -> list[Target]:
        """Return that none of ours is early, and late by a millisecond at most, or by less where that is promised."""
        ours = (builds.INSTALLED, builds.PURE, *(_best() + suffix for suffix in (CONN, PRECISE, SLEEP, THREAD)))
        found = [Target(case, "early", name, "", at_most=0.0, always=True) for case in self.pressures for name in ours]
        bounds = {name: 0.25 if name.endswith(PRECISE) else 1.2 for name in ours}
        return found + [Target(self.idle, "p99", name, "", at_most=bound) for name, bound in bounds.items()]

    def contestants(self) -> Sequence[Contestant]:
        uvloop = None if importlib.util.find_spec("uvloop") else "uvloop is not installed (pip install uvloop)"
        precise = None if _has_precise() else f"this version of deadlined does not know {_SWITCH}"
        return [
            *builds.contestants(),
            *(Contestant(_best() + suffix) for suffix in (CONN, SLEEP, THREAD)),
            Contestant(_best() + PRECISE, precise),
            *map(Contestant, (TRIO, ASYNCIO)),
            Contestant(UVLOOP, uvloop),
            Contestant(THREADING),
            golang.contestant(GO),
        ]

    def cases(self) -> Sequence[str]:
        return [*self.pressures, TICKER]

    def skips(self, contestant: str, case: str) -> str | None:
        if case == TICKER and contestant.endswith((SLEEP, THREAD, THREADING)):
            return "has no ticker of its own"
        return None

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        raise_file_limit(self.timers + 500)
        command, environment = program(contestant)
        if case == TICKER:
            found = run([*command, "ticker", str(_PERIOD), str(self.seconds)], environment)
            return {"CPU": found["cpu"] * 100, "ticks skipped": found["skipped"] * 100}
        timers = min(self.timers, _THREADS) if contestant == THREADING else self.timers
        arguments = ["timers", str(timers), str(self.spread)]
        found = run([*command, *arguments], environment, beside=self.pressures[case])
        early = found.pop("early")
        self.curves.setdefault((contestant, case), []).append(found)
        quantiles = {"p50": "q50", "p90": "q90", "p99": "q99", "p99.9": "q99.9", "max": "q100"}
        return {**{name: found[key] * 1000 for name, key in quantiles.items()}, "early": early * 100}

    def more(self, results: Results) -> Mapping[str, object]:
        return {"curves": [{"contestant": name, "case": case, "seconds": _medians(curves)}
                           for (name, case), curves in sorted(self.curves.items())]}  # fmt: skip

    def plot(self, results: Results, path: Path) -> None:
        """Draw the distributions of the lateness and the ticker's cost."""
        from .plots import distributions  # matplotlib takes a second to import

        distributions(self.title, results, {pair: _medians(curves) for pair, curves in self.curves.items()}, path)

    def quick(self) -> Self:
        return type(self)(timers=200, spread=0.1, seconds=0.3)


class Precision(Lateness):
    """The benchmark `precision`: few timers, without a ticker, on an idle core, beside a busy loop, in a quota.

    `only`: the short names of the situations to measure; empty: all.
    """

    name = "precision"

    def __init__(self, timers: int = 500, spread: float = 1.5, seconds: float = 0.0, only: Sequence[str] = ()) -> None:
        super().__init__(timers, spread, seconds)
        self._only = only
        self.title = f"Lateness of {timers:,} timers within {spread:g} s"
        self.idle, self.busy = "idle core", "beside a busy loop"
        in_quota, pressure = quota()
        names = {"idle": self.idle, "busy": self.busy, "quota": in_quota}
        every = {self.idle: idle_core, self.busy: busy_core, in_quota: pressure}
        self.pressures = {name: every[name] for short, name in names.items() if not only or short in only}
        self.targets = self._targets()

    @property
    def file(self) -> str:
        return self.name

    def cases(self) -> Sequence[str]:
        return list(self.pressures)

    def quick(self) -> Self:
        return type(self)(timers=20, spread=0.05, only=self._only)


def _medians(curves: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each quantile over the repetitions."""
    return {name: statistics.median(curve[name] for curve in curves) for name in curves[0]}


def _best() -> str:
    installed, pure = builds.contestants()
    return pure.name if installed.missing else installed.name


def _has_precise() -> bool:
    """True if a source of the package names the variable; the package itself does not tell."""
    files = Path(deadlined.__file__).parent.rglob("*.py")
    return any(_SWITCH in file.read_text(encoding="utf-8") for file in files)


def program(contestant: str) -> tuple[list[str], dict[str, str]]:
    """Return the command of a contestant without its arguments, and its environment."""
    if contestant == GO:
        # it is pinned to one core only after it has counted the machine's
        return [golang.program("lateness"), "go"], {"GOMAXPROCS": "1"}
    peers = {TRIO: "trio trio", ASYNCIO: "asyncio asyncio", UVLOOP: "asyncio uvloop", THREADING: "threads timer"}
    ours = {CONN: "deadlined conn", SLEEP: "trio deadlined", THREAD: "threads thread"}
    of_suffix = next((peer for suffix, peer in ours.items() if contestant.endswith(suffix)), "deadlined func")
    module, variant = peers.get(contestant, of_suffix).split()
    precise = {_SWITCH: "1"} if contestant.endswith(PRECISE) else {}
    command = [sys.executable, "-m", f"loadtest.peers.lateness_{module}", variant]
    return command, {**builds.environment(contestant), **precise}


BENCHMARK = Lateness()
