"""`python -m loadtest precision`: measure every driver in every situation in turns, and the clocks."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import trio
from rich.markup import escape
from rich.table import Table

from ..bench.processes import SERVER_CORE
from ..bench.schedule import turns
from ..bench.tables import number
from ..report import console, machine, progress, save
from ..servers import ROOT, on_core, raise_file_limit
from . import clocks
from .drivers import Driver, drivers
from .lateness import Lateness
from .situations import Situation, situations

NAME = "precision"

REPETITIONS = 5
TIMERS = 500
SPREAD = 1.5  # seconds
QUICK_TIMERS = 20
QUICK_SPREAD = 0.05
READINGS = 200_000
QUICK_READINGS = 1_000

# seconds after which a child is given up
PATIENCE = 60.0


@dataclass(frozen=True)
class Plan:
    """What the command line asks for. `only`: short names of situations; empty: all. `add`: keep earlier figures."""

    repetitions: int = REPETITIONS
    quick: bool = False
    only: Collection[str] = ()
    add: bool = False

    @property
    def timers(self) -> int:
        """The number of timers of a driver in one repetition."""
        return QUICK_TIMERS if self.quick else TIMERS

    @property
    def spread(self) -> float:
        """Seconds over which the timers are due."""
        return QUICK_SPREAD if self.quick else SPREAD


@dataclass
class Results:
    """Lateness by the name of the situation and the driver. `failures`: the output of drivers that failed."""

    drivers: list[Driver]
    found: dict[tuple[str, str], Lateness] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    clocks: list[clocks.Clock] = field(default_factory=list)

    def add(self, situation: str, driver: str, lateness: Lateness) -> None:
        """Add another repetition."""
        self.found.setdefault((situation, driver), Lateness()).add(lateness)

    @property
    def situations(self) -> list[str]:
        """The names of the situations that were measured."""
        return list(dict.fromkeys(situation for situation, _ in self.found))

    def liars(self) -> list[str]:
        """Describe deadlined's drivers whose timers fired early. There must be none."""
        ours = {driver.name for driver in self.drivers if driver.ours}
        return [
            f"{driver}, {situation}: {found.early} of {found.count} early, by up to {found.earliest * 1e9:,.0f} ns"
            for (situation, driver), found in self.found.items()
            if driver in ours and found.early
        ]

    def document(self) -> dict[str, Any]:
        """Return all results as a JSON document."""
        return {
            "drivers": [{"driver": driver.name, "ours": driver.ours, "missing": driver.missing}
                        for driver in self.drivers],
            "lateness": [{"situation": situation, "driver": driver, **found.document()}
                         for (situation, driver), found in self.found.items()],
            "failures": [{"situation": situation, "driver": driver, "output": output}
                         for (situation, driver), output in self.failures.items()],
            "early": self.liars(),
            "clocks": [asdict(clock) for clock in self.clocks],
        }  # fmt: skip

    def load(self, read: Mapping[str, Any]) -> None:
        """Add the figures of an earlier run."""
        for entry in read["lateness"]:
            self.add(entry["situation"], entry["driver"], Lateness.load(entry))


class MeasuringError(Exception):
    """A child process failed; the text is its output."""


def measure(driver: Driver, situation: Situation, count: int, spread: float) -> Lateness:
    """Measure one repetition. MeasuringError if the child fails or takes longer than PATIENCE."""
    with on_core(SERVER_CORE):
        child = subprocess.Popen(
            driver.command(count, spread),
            cwd=ROOT,
            env={**os.environ, **driver.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # `communicate` would not see what a buffer has read beyond the first line
            bufsize=0,
        )
    with child:
        assert child.stdout is not None
        try:
            first = child.stdout.readline()
            with situation.pressure(child.pid) if first == b"warm\n" else nullcontext():
                remainder, errors = child.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise MeasuringError(f"gave no answer in {PATIENCE:g} s") from error
        finally:
            child.kill()
    output = (first + remainder).decode()
    if child.returncode:
        raise MeasuringError(f"exit code {child.returncode}\n{output}{errors.decode()}")
    return Lateness.load(json.loads(output.splitlines()[-1]))


def run(plan: Plan, directory: Path, pictures: Path | None = None) -> bool:
    """Measure, print tables, and write precision.json and its picture.

    True if nothing failed and none of deadlined's timers fired early. `pictures` is the picture's directory; None is
    `directory`.
    """
    raise_file_limit(TIMERS + 500)
    results = Results(drivers())
    path = directory / f"{NAME}.json"
    if plan.add and path.exists():
        results.load(json.loads(path.read_text(encoding="utf-8")))
    _measure_all(plan, results)
    readings = QUICK_READINGS if plan.quick else READINGS
    results.clocks = trio.run(clocks.measure, readings, 5)
    for situation in results.situations:
        console.print(table(results, situation))
    console.print(clock_table(results.clocks))
    for (situation, driver), output in results.failures.items():
        console.print(f"[red]{escape(driver)}, {escape(situation)}, failed:[/] {escape(output)}")
    for liar in results.liars():
        console.print(f"[bold red]EARLY:[/] {escape(liar)}")
    directory.mkdir(parents=True, exist_ok=True)
    save(NAME, {"quick": plan.quick, **results.document()}, directory)
    from .plots import draw  # matplotlib takes a second to import

    if results.found:
        draw(results, (pictures or directory) / f"{NAME}.png")
    return not results.failures and not results.liars()


def _measure_all(plan: Plan, results: Results) -> None:
    """Measure all turns with a progress bar. A driver that failed is not tried again."""
    by_driver = {driver.name: driver for driver in results.drivers if driver.missing is None}
    by_situation = {found.name: found for found in situations() if not plan.only or found.short in plan.only}
    schedule = turns([(driver, situation) for situation in by_situation for driver in by_driver], plan.repetitions)
    with progress() as bar:
        task = bar.add_task(NAME, total=len(schedule), what="", left="")
        for turn in schedule:
            driver, situation = by_driver[turn.contestant], by_situation[turn.case]
            bar.update(task, what=escape(f"{turn.repetition + 1}/{plan.repetitions} {turn.case}: {driver.name}"))
            if (situation.name, driver.name) not in results.failures:
                try:
                    results.add(situation.name, driver.name, measure(driver, situation, plan.timers, plan.spread))
                except MeasuringError as error:
                    results.failures[situation.name, driver.name] = str(error)
            bar.advance(task)
        bar.update(task, what="")


_POINTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "most": 100.0}


def table(results: Results, situation: str) -> Table:
    """Make the table of one situation, a line per driver."""
    facts = machine()
    found = Table(
        title=escape(f"{situation}: ms late"),
        caption=f"Python {facts['python']}, timers {facts['timers']}; all processes on one core",
    )
    found.add_column("driver", no_wrap=True)
    for name in (*_POINTS, "early", "timers"):
        found.add_column(name, justify="right")
    for driver in results.drivers:
        lateness = results.found.get((situation, driver.name))
        if lateness is None:
            why = f"missing: {driver.missing}" if driver.missing else "failed"
            found.add_row(f"{escape(driver.name)}\n[yellow]{escape(why)}[/]", *("-" for _ in range(len(_POINTS) + 2)))
            continue
        cells = [number(lateness.milliseconds(point)) for point in _POINTS.values()]
        early = f"[bold red]{lateness.early}[/]" if lateness.early and driver.ours else str(lateness.early)
        found.add_row(escape(driver.name), *cells, early, f"{lateness.count:,}")
    return found


def clock_table(found: Collection[clocks.Clock]) -> Table:
    """Make the table of the clocks, a line per clock."""
    rows = Table(
        title="the clocks", caption="cost: a call from Python; step: the smallest seen, promised: get_clock_info"
    )
    rows.add_column("clock", no_wrap=True)
    for name in ("cost, ns", "step, ns", "promised, ns"):
        rows.add_column(name, justify="right")
    rows.add_column("by")
    for clock in found:
        promised = "-" if clock.promised is None else number(clock.promised * 1e9)
        rows.add_row(clock.name, number(clock.cost), number(clock.step * 1e9), promised, escape(clock.implementation))
    return rows
