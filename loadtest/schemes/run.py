"""`python -m loadtest schemes`: measure the queues in turns, each in a process, and write tables, pictures and JSON."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from ..bench import builds, processes
from ..bench.contest import ContestantError
from ..bench.schedule import turns
from ..bench.tables import number
from ..report import console, machine, progress, save
from .results import CASES, Results, load, theory
from .subjects import SUBJECTS

NAME = "schemes"

MOST = 1_000_000
QUICK_MOST = 1000
REPETITIONS = 3

# seconds that one size may take in one repetition, and seconds after which an operation that can be cut short is
PATIENCE = 15.0
BUDGET = 2.0
# seconds for which the small sizes are repeated within one repetition
REPEATED = 0.1
QUICK_BUDGET = 0.02


@dataclass(frozen=True)
class Plan:
    """What the command line asks for. `only`: names of queues; empty: all. `add`: keep earlier figures."""

    repetitions: int = REPETITIONS
    most: int = MOST
    quick: bool = False
    only: Collection[str] = ()
    add: bool = False
    patience: float = PATIENCE

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of timers: powers of ten."""
        most = min(self.most, QUICK_MOST) if self.quick else self.most
        return tuple(10**power for power in range(1, 10) if 10**power <= most)

    @property
    def subjects(self) -> list[str]:
        """The queues to measure, in the order of SUBJECTS."""
        return [name for name in SUBJECTS if not self.only or name in self.only]


def run(plan: Plan, directory: Path, pictures: Path | None = None) -> bool:
    """Measure, print tables, and write schemes.json and the pictures. True if no process failed.

    `pictures` is the pictures' directory; None is `directory`.
    """
    results = _begin(plan, directory)
    failures = _measure(plan, results)
    for case in CASES:
        if results.subjects(case):
            console.print(table(results, case))
    for subject, output in failures.items():
        console.print(f"[red]{escape(subject)} failed:[/] {escape(output)}")
    directory.mkdir(parents=True, exist_ok=True)
    save(NAME, {"quick": plan.quick, **results.document(), "failures": failures}, directory)
    from .plots import draw  # matplotlib takes a second to import

    draw(results, pictures or directory)
    return not failures


def _begin(plan: Plan, directory: Path) -> Results:
    """Return empty results, or an earlier run's. RuntimeError if these are of another build or of other sizes."""
    compiled = machine()["timers"] == "compiled"
    path = directory / f"{NAME}.json"
    if not plan.add or not path.exists():
        return Results(plan.sizes, plan.patience, compiled)
    results = load(path)
    if results.compiled != compiled or results.sizes != plan.sizes:
        raise RuntimeError(f"{path} is of another build or of other sizes: nothing can be added to it")
    return results


def _measure(plan: Plan, results: Results) -> dict[str, str]:
    """Measure all turns with a progress bar, and return the output of queues that failed."""
    failures: dict[str, str] = {}
    budget, repeated = (QUICK_BUDGET, 0.0) if plan.quick else (BUDGET, REPEATED)
    schedule = turns([(name, NAME) for name in plan.subjects], plan.repetitions)
    with progress() as bar:
        task = bar.add_task(NAME, total=len(schedule), what="", left="")
        for turn in schedule:
            name = turn.contestant
            bar.update(task, what=f"{turn.repetition + 1}/{plan.repetitions} {name}")
            arguments = [name, turn.repetition, plan.patience, budget, repeated, *plan.sizes]
            command = [sys.executable, "-m", f"{__package__}.child", *map(str, arguments)]
            try:
                results.add(name, processes.run(command, builds.environment(builds.INSTALLED)))
            except ContestantError as error:
                failures[name] = str(error)
            bar.advance(task)
        bar.update(task, what="")
    return failures


def table(results: Results, case: str) -> Table:
    """Make the table of one case: a line per queue, a column per size."""
    facts = machine()
    built = "compiled" if results.compiled else "pure Python"
    found = Table(
        title=escape(f"{case}: ns each, by the number of timers"),
        caption=f"Python {facts['python']}, timers {built}; medians of {_repetitions(results, case)}; "
        f"> {results.patience:g} s: not measured, one repetition would take longer",
    )
    found.add_column("queue", no_wrap=True)
    for n in results.sizes:
        found.add_column(f"{n:,}", justify="right")
    found.add_column("slope", justify="right")
    found.add_column("fits")
    found.add_column("theory")
    for name in results.subjects(case):
        medians = [results.median(case, name, n) for n in results.sizes]
        cells = [f"> {results.patience:g} s" if median is None else number(median) for median in medians]
        grown = results.growth(case, name)
        tail = ["-", "-"] if grown is None else [f"{grown.slope:.2f}", grown.label]
        found.add_row(escape(name), *cells, *tail, theory(case, name) or "-")
    return found


def _repetitions(results: Results, case: str) -> str:
    counts = sorted({len(values) for (where, _, _), values in results.values.items() if where == case})
    return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
