"""Thousands of connections whose deadlines move all the time: cost, lateness, and wrong firings.

Each request moves the read and the write deadline of its connection and is answered. Some deadlines are left to pass,
some are cleared, and some connections are closed by either side and opened anew. The client, not the server, decides
which firings were stale, early or lost (`loadtest/clients/churn_account.py`).

Facts      Servers under a fixed rate below their limit are compared by cost, not by speed. CPython's garbage collector
           walks the objects of all connections now and then.
Hazard     That walk takes a tenth of a second with 15,000 connections, whatever the timers do.
Answer     All Python servers set the collector as `deadlined serve` does (`deadlined.service.tune_gc`); ours is
           also measured with the collector's defaults.
Cost       In the profile "herd" all deadlines are at one instant, so the last one is late by all the others. A p99 of
           milliseconds is impossible there (15,000 tasks in 5 ms would be 0.3 us each); the target is trio's.

A soak: CHURN_SECONDS=600 python -m loadtest bench churn --repetitions 1. Also CHURN_CONNECTIONS and CHURN_RATE
(requests per second of all connections together).
"""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import psutil  # type: ignore[import-untyped,unused-ignore]

from ..clients.churn import WARM
from ..clients.churn_profiles import PROFILES
from ..servers import ROOT, Server, Usage, pin, raise_file_limit, running
from . import builds, golang
from .contest import Benchmark, Contestant, ContestantError, Metric, Target
from .processes import CLIENT_CORE, SERVER_CORE

TRIO: Final = "trio"
ASYNCIO: Final = "asyncio"
GO: Final = "Go"
AS_IT_COMES: Final = ", collector as it comes"

# descriptors beside those of the connections; a connection that is being replaced may have two
_SPARE: Final = 500
# seconds beyond the load, for opening and for the last deadlines
_PATIENCE: Final = 150.0

_MIB: Final = 1024 * 1024

# MiB that the server may grow after the first third. This finds stopped and moved timers that pile up: at 10,000
# requests a second, an entry of 100 bytes kept for each would be 12 MiB in the remaining 13 seconds. Smaller changes
# are those of the allocator and the collector.
_GROWTH: Final = 8.0


class Churn(Benchmark):
    """The benchmark `churn`: `connections`, as far as descriptors allow, make `rate` requests per second together."""

    name = "churn"
    metrics: Mapping[str, Metric] = {
        "resets": Metric("/s", None),
        "rate reached": Metric("%", "more"),
        "firings": Metric("/s", None),
        "p50": Metric("ms", "less"),
        "p99": Metric("ms", "less"),
        "max": Metric("ms", "less"),
        "CPU": Metric("%", "less"),
        "per connection": Metric("KiB", "less"),
        "growth": Metric("MiB", "less"),
        "stale": Metric("", "less"),
        "early": Metric("", "less"),
        "lost": Metric("", "less"),
        "client's CPU": Metric("%", None),
    }

    def __init__(self, connections: int = 15_000, rate: float = 10_000.0, seconds: float = 20.0) -> None:
        self.connections = connections
        self.rate = rate
        self.seconds = seconds
        self.title = f"Churn of deadlines: {connections:,} connections, {rate:,.0f} requests/s, {seconds:g} s"
        self.targets: Sequence[Target] = [
            target for ours in (builds.INSTALLED, builds.PURE) for case in PROFILES for target in _targets(case, ours)
        ]

    @classmethod
    def from_environment(cls) -> Self:
        """Make it from the variables CHURN_... ValueError if one is not a number."""
        return cls(
            int(os.environ.get("CHURN_CONNECTIONS", "15000")),
            float(os.environ.get("CHURN_RATE", "10000")),
            float(os.environ.get("CHURN_SECONDS", "20")),
        )

    def contestants(self) -> Sequence[Contestant]:
        installed, pure = builds.contestants()
        best = pure if installed.missing else installed
        off = Contestant(best.name + AS_IT_COMES)
        return [installed, pure, off, Contestant(TRIO), Contestant(ASYNCIO), golang.contestant(GO)]

    def cases(self) -> Sequence[str]:
        return list(PROFILES)

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        connections = min(self.connections, raise_file_limit(self.connections + _SPARE) - _SPARE)
        command, environment = server(contestant)
        with running(command, core=SERVER_CORE, environment={**os.environ, **environment}) as process:
            asked = client(process.port, case, connections, self.rate, self.seconds)
            try:
                figures = self._watch(process, asked, connections)
            except (ContestantError, OSError, psutil.Error) as error:
                raise ContestantError(f"{error}\n{''.join(process.output)}") from error
        return {name: value for name, value in figures.items() if not math.isnan(value)}

    def quick(self) -> Self:
        return type(self)(connections=200, rate=1000.0, seconds=2.0)

    def _watch(self, process: Server, command: Sequence[str], connections: int) -> dict[str, float]:
        with _client_running(command, self.seconds + _PATIENCE) as steps:
            steps.step("warm")
            warm = Usage.of(process.pid)
            steps.go_on("opened")
            opened = Usage.of(process.pid)
            steps.go_on(None)
            steps.sleep(self.seconds / 3)
            third = Usage.of(process.pid)
            steps.step("loaded")
            loaded = Usage.of(process.pid)
            found = steps.go_on("done")
        if found["wrong"] or found["broken"]:
            raise ContestantError(f"{found['wrong']} wrong answers, {found['broken']} broken connections")
        p50, p99, most = (seconds * 1000 for seconds in found["lateness"])
        return {
            "resets": found["answered"],
            "rate reached": found["reached"] * 100,
            "firings": found["fired"],
            "p50": p50,
            "p99": p99,
            "max": most,
            "CPU": (loaded.cpu - opened.cpu) / self.seconds * 100,
            "per connection": (opened.resident - warm.resident) / max(connections - WARM, 1) / 1024,
            "growth": (loaded.resident - third.resident) / _MIB,
            "stale": found["stale"],
            "early": found["early"],
            "lost": found["lost"],
            "client's CPU": found["cpu"] * 100,
        }


def _targets(case: str, ours: str) -> list[Target]:
    found = [Target(case, metric, ours, "", at_most=0.0) for metric in ("stale", "early", "lost")]
    found.append(Target(case, "growth", ours, "", at_most=_GROWTH))
    if case == "herd":
        found.append(Target(case, "p99", ours, TRIO, at_most=1.0))
    else:
        found.append(Target(case, "p99", ours, "", at_most=5.0))
    return found


def server(contestant: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a contestant's server."""
    if contestant == GO:
        # it is pinned to one core only after it has counted the machine's
        return [golang.program("churn")], {"GOMAXPROCS": "1"}
    module = {TRIO: "churn_trio", ASYNCIO: "churn_asyncio"}.get(contestant, "churn_server")
    command = [sys.executable, "-m", f"loadtest.peers.{module}"]
    if contestant.endswith(AS_IT_COMES):
        command.append("--collector-as-it-comes")
    return command, builds.environment(contestant)


def client(port: int, profile: str, connections: int, rate: float, seconds: float) -> list[str]:
    """Return the command of the client."""
    arguments = (port, profile, connections, rate, seconds)
    return [sys.executable, "-m", "loadtest.clients.churn", *map(str, arguments)]


class _Steps:
    """The steps of a client process, which waits after each until it is told to go on."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def step(self, name: str) -> dict[str, Any]:
        """Wait for a step, and return its figures. ContestantError if another step comes, or none."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("{") or json.loads(line)["step"] != name:
            self._process.kill()
            raise ContestantError(f"the client failed, or took too long\n{line}{self._process.stdout.read()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def go_on(self, name: str | None) -> dict[str, Any]:
        """Let the client go on, and wait for the step `name` unless it is None."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return {} if name is None else self.step(name)

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds` or until the next step."""
        assert self._process.stdout is not None
        select.select([self._process.stdout], [], [], seconds)


@contextmanager
def _client_running(command: Sequence[str], seconds: float) -> Iterator[_Steps]:
    """Start a client on its core; kill it after `seconds`."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **builds.environment(builds.INSTALLED)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    giving_up = threading.Timer(seconds, process.kill)
    giving_up.start()
    try:
        pin(process.pid, CLIENT_CORE)
        yield _Steps(process)
    finally:
        giving_up.cancel()
        process.kill()
        process.communicate()


BENCHMARK = Churn.from_environment()
