"""The benchmarks of programs that benchmarks.toml lists: how each program is started, and what it is measured by; and
`schemes`, whose programs are the timer queues."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from deadlined.timers import COMPILED

from ..servers import on_core, running
from . import builds, client, golang, processes
from .contest import Benchmark, Contestant, ContestantError, Metric
from .crowd import allowed
from .processes import CLIENT_CORE, SERVER_CORE
from .results import Results
from .schemes_operations import OPERATIONS, SUBJECTS, WORKLOADS, Measured

# seconds beyond the load, for opening and for the last deadlines
_PATIENCE = 150.0


class Programs(Benchmark):
    """A benchmark whose contestants are the programs of its table.

    A program gets the numbers of the case as its last arguments, and prints its figures.
    """

    def contestants(self) -> Sequence[Contestant]:
        if any(program.startswith("bench.") for program in self.stated["programs"].values()):
            builds.require_pyperf()
        return [_contestant(*entry) for entry in self.stated["programs"].items()]

    def skips(self, contestant: str, case: str) -> str | None:
        listed = self.stated.get("skips", ())
        return next((s["why"] for s in listed if case in s["cases"] and contestant in s["contestants"]), None)

    def command(self, contestant: str, *arguments: object) -> list[str]:
        """Return the command that starts this contestant. ContestantError if it must be built and cannot be."""
        first, *words = self.stated["programs"][contestant].split()
        start = [golang.program(words.pop(0))] if first == "go" else [sys.executable, "-m", f"loadtest.{first}"]
        return [*start, *words, *map(str, arguments)]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        numbers = self.stated["cases"][case]
        return processes.run(self.command(contestant, *numbers), builds.environment(contestant))


def _contestant(name: str, program: str) -> Contestant:
    words = program.split()
    if words[0] == "go":
        return golang.contestant(name)
    needs = ["uvloop"] if "uvloop" in words else []
    return Contestant(name, builds.not_installed(needs) or builds.missing(name))


class Echo(Programs):
    def contestants(self) -> Sequence[Contestant]:
        client.compiled()  # nothing can be measured without it
        return super().contestants()

    def saturates(self, case: str) -> bool:
        # one connection waits for its client
        return bool(self.stated["cases"][case][0] > 1)

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        around = builds.surroundings(contestant, neutral=not case.endswith("default malloc"))
        with running(self.command(contestant), core=SERVER_CORE, environment=around) as server:
            return client.exchange(server.port, server.pid, *self.stated["cases"][case]).figures


@contextmanager
def busy_core() -> Iterator[subprocess.Popen[bytes]]:
    """Run a busy loop on the core of the timers."""
    with on_core(SERVER_CORE):
        process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    with process:
        try:
            yield process
        finally:
            process.kill()


class Lateness(Programs):
    """The benchmark `lateness`. Each program shares its core with a busy loop in half of the cases."""

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        with busy_core() if case.endswith("beside a busy loop") else nullcontext():
            return super().measure(contestant, case)


class Churn(Programs):
    """The benchmark `churn`: each program serves, and `loadtest/clients/churn.py` measures it."""

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        most, period, seconds = self.stated["cases"][case]
        connections = allowed(most)
        around = {**os.environ, **builds.environment(contestant)}
        ours = builds.environment(builds.INSTALLED)
        with running(self.command(contestant), core=SERVER_CORE, environment=around) as server:
            sizes = (server.port, server.pid, case, connections, period, seconds)
            loads = [sys.executable, "-m", "loadtest.clients.churn", *map(str, sizes)]
            try:
                found = processes.run(loads, ours, core=CLIENT_CORE, seconds=seconds + _PATIENCE)
            except ContestantError as error:
                raise ContestantError(f"{error}\n{''.join(server.output)}") from error
        if wrong := {name: count for name in ("wrong", "broken") if (count := found.pop(name))}:
            raise ContestantError(f"wrong answers or broken connections: {wrong}")
        return {**found, "connections": connections}


class Schemes(Benchmark):
    """The benchmark `schemes`: each timer queue in each operation and workload, a metric per number of timers."""

    asked: Mapping[str, Measured] = {**OPERATIONS, **WORKLOADS}

    def __init__(self, name: str, *, quick: bool = False) -> None:
        super().__init__(name, quick=quick)
        self.title = self.title.format(build="compiled" if COMPILED else "pure Python")
        self.metrics = {**{str(size): Metric("ns", "less") for size in self.stated["sizes"]}, **self.metrics}

    def contestants(self) -> Sequence[Contestant]:
        builds.require_pyperf()
        return [Contestant(name) for name in SUBJECTS]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        settings = (contestant, case, self.stated["patience"], self.stated["values"], *self.stated["sizes"])
        command = [sys.executable, "-m", f"{__package__}.schemes_child", *map(str, settings)]
        return processes.run(command, builds.environment(builds.INSTALLED))

    def plot(self, results: Results, path: Path) -> None:
        from .plots import growths  # matplotlib takes a second to import

        costs = {
            case: {name: found for name in SUBJECTS if (found := self._costs(results, name, case))}
            for case in results.cases
        }
        growths(self.title, {case: found for case, found in costs.items() if found}, path)

    def _costs(self, results: Results, contestant: str, case: str) -> dict[int, float]:
        found = ((size, results.spread(contestant, case, str(size))) for size in self.stated["sizes"])
        return {size: spread.median for size, spread in found if spread is not None}
