"""Checks contestants and keeps a file of results for each.

Facts      Most of a check is waiting for long deadlines, which costs next to no processor. What honest clients feel
           beside a crowd is only right if nothing else runs.
Hazard     One after the other would take hours; all at once would measure the machine.
Answer     Some contestants wait side by side, and then the crowds attack them one after the other.
Cost       The longest deadline of each group, and half a minute for each contestant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..check.attacks import ATTACKS
from ..check.run import Check, Plan, collect
from ..commands import now, put
from ..report import machine, revision
from ..target import ForbiddenTargetError, UnusableTargetError
from .contestants import Contestant, Running, StartError, missing, started, version

# without TLS: certificates say nothing about slow clients
NAMES = frozenset(attack.name for attack in ATTACKS if not attack.needs_tls)

Result = dict[str, Any]
# called with a line of what is being done
Say = Callable[[str], None]


@dataclass(frozen=True)
class Grid:
    """What to measure: the limit of a check in seconds, its crowd, and how many contestants wait side by side."""

    limit: float
    connections: int
    side: int
    directory: Path


@dataclass
class _Entry:
    contestant: Contestant
    resources: ExitStack
    running: Running
    check: Check


def measure(contestants: Sequence[Contestant], grid: Grid, say: Say) -> bool:
    """Check all, and write a file of results for each as soon as it is known; True if none failed.

    Ctrl-C, and ForbiddenTargetError for a lack of ports or descriptors, keep what was measured: what is half done is
    written only where nothing was before. They are raised again.
    """
    facts = {**revision(), "machine": machine()}
    good = True
    for begin in range(0, len(contestants), grid.side):
        group = contestants[begin : begin + grid.side]
        say(f"{begin + 1} to {begin + len(group)} of {len(contestants)} contestants")
        good &= _Group(grid, facts, say).measure(group)
    return good


class _Group:
    """Contestants that wait side by side."""

    def __init__(self, grid: Grid, facts: Result, say: Say) -> None:
        self._grid = grid
        self._facts = facts
        self._say = say
        self._entries: list[_Entry] = []

    def measure(self, group: Sequence[Contestant]) -> bool:
        with ExitStack() as whole:
            try:
                for contestant in group:
                    self._start(contestant, whole)
                good = len(self._entries) == len(group)
                self._say(f"{len(self._entries)} wait side by side, for {self._grid.limit:g} s at most")
                collect(entry.check for entry in self._entries)
                while self._entries:
                    self._say(f"crowds attack {self._entries[0].contestant.name}")
                    self._entries[0].check.attack()
                    self._end(self._entries[0])
                    self._entries.pop(0)
            except (KeyboardInterrupt, ForbiddenTargetError) as error:
                for entry in self._entries:
                    entry.check.interrupt(str(error))
                    self._end(entry)
                raise
        return good

    def _start(self, contestant: Contestant, whole: ExitStack) -> None:
        """Start a contestant and ask it as honest clients do; write that it failed if it does."""
        resources = whole.enter_context(ExitStack())
        self._say(f"starting {contestant.name}")
        try:
            running = resources.enter_context(started(contestant))
            plan = Plan(running.target, NAMES, self._grid.limit, self._grid.connections)
            check = resources.enter_context(Check(plan, lambda *_: None))
            check.prepare()
        except (StartError, UnusableTargetError) as error:
            resources.close()
            self._write(contestant, {"failed": str(error)})
            return
        self._entries.append(_Entry(contestant, resources, running, check))

    def _end(self, entry: _Entry) -> None:
        report = entry.check.report()
        found = {"failed": "", "died": entry.running.died(), "report": report.as_json()}
        entry.resources.close()
        if not report.interrupted or not self._path(entry.contestant).exists():
            self._write(entry.contestant, found)

    def _path(self, contestant: Contestant) -> Path:
        return self._grid.directory / f"{contestant.name}.json"

    def _write(self, contestant: Contestant, found: Result) -> None:
        server = contestant.server
        result = {
            "server": server.name,
            "settings": contestant.settings,
            "version": "" if missing(server) else version(server),
            "options": msgspec.to_builtins(contestant.options),
            "note": server.note,
            "at": now(),
            "limit": self._grid.limit,
            "crowd": self._grid.connections,
            **self._facts,
            **found,
        }
        self._grid.directory.mkdir(parents=True, exist_ok=True)
        put(self._path(contestant), json.dumps(result, indent=1) + "\n")
        grade = found["report"]["grade"] if "report" in found else found["failed"]
        self._say(f"{contestant.name}: {grade}")


def results(directory: Path) -> Iterator[Result]:
    """Return what is known of each contestant, in the order of their names. ValueError if there is nothing."""
    files = sorted(directory.glob("*.json"))
    if not files:
        raise ValueError(f"{directory} has no results: python -m loadtest grid")
    for file in files:
        yield json.loads(file.read_text(encoding="utf-8"))


def remarks(directory: Path) -> str:
    """Return what the one who measured has to say, remarks.txt beside the results; "" for nothing."""
    file = directory / "remarks.txt"
    return file.read_text(encoding="utf-8") if file.exists() else ""
