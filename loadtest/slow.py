"""Slow attacks by slowhttptest with an honest client beside them: which connections are cut, why and when.

Facts      slowhttptest opens its connections and then sends (or reads) next to nothing; once a second it also makes an
           honest probe of its own. The server logs each connection's reason and the seconds since its accept.
Hazard     The tool's own report shows only what the attacker saw. Counting every cut connection would include cuts for
           the wrong reason.
Answer     The server's log is checked connection by connection: as many as attack are cut for the mode's reason, none
           early, none later than half a second after its deadline. Every other connection was ended by its peer: the
           tool's probes, and honest requests, which come in an open loop (openloop/).
Cost       A kernel may accept a whole answer for a peer that reads nothing; the pipelined next one is cut then.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event
from time import monotonic

import msgspec
from rich.table import Table

from .crew import LEAD, crew
from .histogram import milliseconds
from .openloop import run as openloop
from .openloop.client import Plan, Tally
from .report import console, machine
from .servers import Record, Server, attempts, deadlined_command, raise_file_limit, running, tool
from .target import resolve

APP = "loadtest.apps:target"

# seconds that a cut may come after its deadline, with 1,000 connections due at once on a shared core
TOLERANCE = 0.5
# honest requests: so many a second, for so many seconds at most; and the seconds that one may take
HONEST_RATE, HONEST_SECONDS, PATIENCE = 50.0, 3600.0, 10.0

# the reasons of connections that their peer ended
_BY_PEER = frozenset({"client_closed", "client_reset", "done"})


class Mode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One attack, as slow.toml describes it."""

    name: str
    attack: tuple[str, ...]
    path: str
    defence: tuple[str, ...]
    reason: str
    deadline: float
    rate: float = float("inf")

    def due(self, record: Record) -> float:
        """Return the latest time of the cut, in seconds after the accept."""
        received: int = record["received"]
        return self.deadline + received / self.rate


MODES = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, tuple[Mode, ...]])["mode"]


@dataclass(frozen=True)
class Outcome:
    """The result of one attack, of `connections`.

    `cut`: the log's records of connections that were cut for the mode's reason; `others`: the reasons of all other
    connections, which are probes and honest ones. `honest`: what the honest client has counted.
    """

    mode: Mode
    connections: int
    cut: list[Record]
    others: Counter[str]
    honest: Tally

    @property
    def early(self) -> int:
        """The connections that were cut before the deadline; the log rounds to a microsecond."""
        return sum(record["elapsed"] < self.mode.deadline - 1e-6 for record in self.cut)

    @property
    def late(self) -> int:
        """The connections that were cut later than the tolerance after the deadline."""
        return sum(record["elapsed"] > self.mode.due(record) + TOLERANCE for record in self.cut)

    @property
    def good(self) -> bool:
        """True if every attacker was cut for the right reason in time and every honest request was answered, but for
        the last ones, which have not waited longer than a cut may be late."""
        cut_rightly = len(self.cut) == self.connections and not (self.early or self.late)
        served = self.honest.ok >= max(1, self.honest.due - HONEST_RATE * TOLERANCE) and not self.honest.errors
        return cut_rightly and self.others.keys() <= _BY_PEER and served


def run_mode(mode: Mode, connections: int = 1000) -> Outcome:
    """Start a server, attack it in this mode, and judge its log."""
    raise_file_limit(2 * connections + 1000)
    program = tool("slowhttptest")
    with running(deadlined_command(APP, *mode.defence)) as server, crew(openloop.main, 1) as honest:
        # each on a connection of its own, until told to stop
        asked = Plan(resolve(f"{server.url}/honest"), HONEST_RATE, HONEST_SECONDS, 100, PATIENCE, reuse=False)
        honest.order([(asked, monotonic() + LEAD)])
        attack(program, mode, server.url, connections)
        for _ in attempts(mode.deadline + 5.0, 0.1):
            if len(_cut(server, mode)) >= connections:
                break
        honest.tell("enough")
        (felt,) = honest.collect(Event(), lambda: None, lambda *_: None)
    # the server has ended: its log is complete
    cut = _cut(server, mode)
    others = Counter(record["reason"] for record in server.connections() if record["reason"] != mode.reason)
    return Outcome(mode, connections, cut, others, felt)


def attack(program: str, mode: Mode, url: str, connections: int) -> None:
    """Run slowhttptest, which ends when all its connections are closed, or by its own limit of 10 s."""
    number = str(connections)
    flags = ["-c", number, "-r", number, "-i", "10", "-l", "10", "-u", url + mode.path, "-p", "3"]
    subprocess.run([program, *mode.attack, *flags], stdout=subprocess.DEVNULL, timeout=60, check=False)


def _cut(server: Server, mode: Mode) -> list[Record]:
    return [record for record in server.connections() if record["reason"] == mode.reason]


def run(connections: int) -> bool:
    """Run all modes and print a table. True if all went well."""
    table = Table(title=f"slowhttptest, {connections} connections each, against deadlined serve")
    for column in ("attack", "reason", "cut", "early", "late", "cut after p50/max", "honest ok/failed", "honest p99"):
        table.add_column(column, justify="left" if column == "attack" else "right", no_wrap=column == "attack")
    good = True
    for mode in MODES:
        console.print(f"{mode.name}: {connections} connections, {mode.reason} expected after {mode.deadline:g} s ...")
        outcome = run_mode(mode, connections)
        table.add_row(*_row(outcome))
        good &= outcome.good
    facts = machine()
    table.caption = f"Python {facts['python']}, timers {facts['timers']}, {facts['cores']} cores"
    console.print(table)
    return good


def _row(outcome: Outcome) -> tuple[str, ...]:
    counts = (str(number) for number in (len(outcome.cut), outcome.early, outcome.late))
    seconds = [record["elapsed"] for record in outcome.cut] or [0.0]
    after = f"{median(seconds):.3f} / {max(seconds):.3f} s"
    asked = f"{outcome.honest.ok} / {outcome.honest.errors.total()}"
    p99 = milliseconds(outcome.honest.latency)["p99"] or 0.0
    return outcome.mode.name, outcome.mode.reason, *counts, after, asked, f"{p99:.0f} ms"
