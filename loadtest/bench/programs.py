"""The benchmarks of programs that programs.toml lists, and how each program is started."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from . import builds, golang
from .contest import Benchmark, Contestant

_TABLES: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    Path(__file__).with_name("programs.toml").read_text(encoding="utf-8")
)


class Programs(Benchmark):
    """A benchmark whose contestants are the programs of its table. An abstract base class."""

    def contestants(self) -> Sequence[Contestant]:
        return [_contestant(*entry) for entry in _TABLES[self.name].items()]

    def command(self, contestant: str, *arguments: object) -> list[str]:
        """Return the command that starts this contestant. ContestantError if it must be built and cannot be."""
        first, *words = _TABLES[self.name][contestant].split()
        start = [golang.program(words.pop(0))] if first == "go" else [sys.executable, "-m", f"loadtest.{first}"]
        return [*start, *words, *map(str, arguments)]


def _contestant(name: str, program: str) -> Contestant:
    words = program.split()
    if words[0] == "go":
        return golang.contestant(name)
    if "uvloop" in words:
        return Contestant(name, None if find_spec("uvloop") else "uvloop is not installed (pip install uvloop)")
    installed, pure = builds.contestants()
    build = pure if name.startswith(builds.PURE) else installed
    return Contestant(name, build.missing if name.startswith(builds.INSTALLED) else None)
