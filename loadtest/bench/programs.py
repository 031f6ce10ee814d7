"""The benchmarks of programs that benchmarks.toml lists, and how each program is started."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Self

from . import builds, golang, processes
from .contest import Benchmark, Contestant


class Programs(Benchmark):
    """A benchmark whose contestants are the programs of its table. `cases`: the table that has the cases.

    A program gets the numbers of the case as its last arguments, and prints its figures.
    """

    def __init__(self, name: str, cases: str = "cases") -> None:
        super().__init__(name)
        self.numbers = self.stated[cases]
        self.targets = [target for target in self.targets if target.case in self.numbers]

    def contestants(self) -> Sequence[Contestant]:
        return [_contestant(*entry) for entry in self.stated["programs"].items()]

    def cases(self) -> Sequence[str]:
        return list(self.numbers)

    def skips(self, contestant: str, case: str) -> str | None:
        listed = self.stated.get("skips", ())
        return next((s["why"] for s in listed if case in s["cases"] and contestant in s["contestants"]), None)

    def command(self, contestant: str, *arguments: object) -> list[str]:
        """Return the command that starts this contestant. ContestantError if it must be built and cannot be."""
        first, *words = self.stated["programs"][contestant].split()
        start = [golang.program(words.pop(0))] if first == "go" else [sys.executable, "-m", f"loadtest.{first}"]
        return [*start, *words, *map(str, arguments)]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        return processes.run(self.command(contestant, *self.numbers[case]), builds.environment(contestant))

    def quick(self) -> Self:
        return type(self)(self.name, "quick")


def _contestant(name: str, program: str) -> Contestant:
    words = program.split()
    if words[0] == "go":
        return golang.contestant(name)
    if "uvloop" in words and not find_spec("uvloop"):
        return Contestant(name, "uvloop is not installed (pip install uvloop)")
    return Contestant(name, builds.missing(name))
