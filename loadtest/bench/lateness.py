"""The lateness of 10,000 timers within a second, on an idle core and beside a busy loop; and the cost of a 1 ms ticker
(golang/go#27707).

Facts      Python's epoll counts in milliseconds and rounds up: a timer fires up to one late. Beside a busy loop the
           scheduler decides, in slices of a few milliseconds.
Hazard     A loop that rounds the other way is punctual on average and early half of the time.
Answer     The quantiles of all timers, and the share of early ones. A ticker's cost is its share of a core, shown with
           the share of the ticks that it skipped, because skipping is cheap.
Cost       For a peer without timers that call a function (trio, connections), a task waits for each.

Every process runs on core 0; the busy loop is a second process there. The picture is drawn from 103 quantiles, which
are kept beside it as bench-lateness-quantiles.json.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import deadlined

from ..report import save
from ..servers import pin, raise_file_limit
from . import builds, golang
from .contest import Benchmark, Contestant, Metric, Target
from .processes import SERVER_CORE, run
from .results import Results

TRIO: Final = "trio sleep_until"
ASYNCIO: Final = "asyncio call_at"
UVLOOP: Final = "uvloop call_at"
GO: Final = "Go AfterFunc"
# the suffixes of ours
CONN: Final = ", Conn"
PRECISE: Final = ", precise"

TICKER: Final = "1 ms ticker"

_PERIOD: Final = 0.001
# the environment variable that makes the pump wake more finely than a millisecond
_SWITCH: Final = "DEADLINED_PRECISE"


class Lateness(Benchmark):
    """The benchmark `lateness`. `timers` within `spread` seconds, and a ticker for `seconds`."""

    name = "lateness"
    metrics: Mapping[str, Metric] = {
        "p50": Metric("ms", "less"),
        "p99": Metric("ms", "less"),
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
        self.title = f"Lateness of {timers:,} timers within {spread:g} s, and a ticker of 1 ms"
        self.targets: Sequence[Target] = self._targets()
        # for each contestant and case the quantiles in seconds, repetition by repetition
        self.curves: dict[tuple[str, str], list[dict[str, float]]] = {}

    def _targets(self) -> list[Target]:
        ours = (builds.INSTALLED, builds.PURE, *(_best() + suffix for suffix in (CONN, PRECISE)))
        found = [Target(case, "early", name, "", at_most=0.0) for case in (self.idle, self.busy) for name in ours]
        bounds = {name: 0.25 if name.endswith(PRECISE) else 1.2 for name in ours}
        return found + [Target(self.idle, "p99", name, "", at_most=bound) for name, bound in bounds.items()]

    def contestants(self) -> Sequence[Contestant]:
        uvloop = None if importlib.util.find_spec("uvloop") else "uvloop is not installed (pip install uvloop)"
        precise = None if _has_precise() else f"this version of deadlined does not know {_SWITCH}"
        return [
            *builds.contestants(),
            Contestant(_best() + CONN),
            Contestant(_best() + PRECISE, precise),
            Contestant(TRIO),
            Contestant(ASYNCIO),
            Contestant(UVLOOP, uvloop),
            golang.contestant(GO),
        ]

    def cases(self) -> Sequence[str]:
        return [self.idle, self.busy, TICKER]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        raise_file_limit(self.timers + 500)
        command, environment = program(contestant)
        if case == TICKER:
            found = run([*command, "ticker", str(_PERIOD), str(self.seconds)], environment)
            return {"CPU": found["cpu"] * 100, "ticks skipped": found["skipped"] * 100}
        arguments = ["timers", str(self.timers), str(self.spread)]
        if case == self.busy:
            with busy(SERVER_CORE):
                found = run([*command, *arguments], environment)
        else:
            found = run([*command, *arguments], environment)
        early = found.pop("early")
        self.curves.setdefault((contestant, case), []).append(found)
        quantiles = {"p50": "q50", "p99": "q99", "max": "q100"}
        return {**{name: found[key] * 1000 for name, key in quantiles.items()}, "early": early * 100}

    def plot(self, results: Results, path: Path) -> None:
        """Draw the distributions of the lateness and the ticker's cost."""
        from .lateness_plot import draw

        medians = {pair: _medians(curves) for pair, curves in self.curves.items()}
        kept = [{"contestant": name, "case": case, "seconds": curve} for (name, case), curve in sorted(medians.items())]
        save(f"{path.stem}-quantiles", {"curves": kept}, path.parent)
        draw(self.title, results, medians, path)

    def quick(self) -> Self:
        return type(self)(timers=200, spread=0.1, seconds=0.3)


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
    module, variant = {
        TRIO: ("trio", "trio"),
        ASYNCIO: ("asyncio", "asyncio"),
        UVLOOP: ("asyncio", "uvloop"),
    }.get(contestant, ("deadlined", "conn" if contestant.endswith(CONN) else "func"))
    precise = {_SWITCH: "1"} if contestant.endswith(PRECISE) else {}
    command = [sys.executable, "-m", f"loadtest.peers.lateness_{module}", variant]
    return command, {**builds.environment(contestant), **precise}


@contextmanager
def busy(core: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a busy loop on this core."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            pin(process.pid, core)
            yield process
        finally:
            process.kill()


BENCHMARK = Lateness()
