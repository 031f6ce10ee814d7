"""64-byte messages echoed over TCP, one in flight per connection, with and without deadlines.

Facts      The cost of a deadline shows in the CPU time of a message; kernel, event loop and stream take most of it.
Hazard     glibc returns large receive buffers to the kernel after every message, which halves asyncio's rate and
           favours servers that receive less at a time. A rate that the client limits says nothing about a server.
Answer     The allocator is told to keep such memory, for all servers; one case shows its defaults. `busy` is the share
           of its core that a server used: far below 100 % it waited for the client, or shared the cores with `others`.
Cost       The client spins on a core of its own: two cores without other load are needed.

`added` is the CPU time of a message beyond that of the same server without deadlines, as last measured in the same
case. `tax` is the same in percent and more precise: one server has its deadlines on and off in turn, fifty times a
second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Self

from ..servers import START, Server, running
from . import builds, client, golang
from .contest import Benchmark, Contestant, Metric, Target
from .neighbours import in_quiet, neighbours
from .processes import SERVER_CORE

PLAIN: Final = f"{builds.INSTALLED}, no deadline"
MOVED: Final = f"{builds.INSTALLED}, both deadlines moved"
LEAST: Final = "the least: two turns of trio"
CONTRACT: Final = "the least: two checkpoints of trio"
PURE_PLAIN: Final = f"{builds.PURE}, no deadline"
PURE_MOVED: Final = f"{builds.PURE}, both deadlines moved"
TRIO: Final = "trio.SocketStream"
TRIO_FAIL_AFTER: Final = "trio, fail_after per operation"
TRIO_MOVED: Final = "trio, one scope moved"
ASYNCIO: Final = "asyncio streams"
ASYNCIO_TIMEOUT: Final = "asyncio, timeout per read"
UVLOOP: Final = "uvloop streams"
UVLOOP_TIMEOUT: Final = "uvloop, timeout per read"
IN_TURN: Final = "deadlines on and off in turn"
TAX: Final = f"{builds.INSTALLED}, {IN_TURN}"
PURE_TAX: Final = f"{builds.PURE}, {IN_TURN}"
CLOCK_TAX: Final = f"{builds.INSTALLED}, only the clock read, on and off in turn"
TOGETHER_TAX: Final = f"{builds.INSTALLED}, both by one call, on and off in turn"
GO_TAX: Final = f"Go, {IN_TURN}"
GO: Final = "Go net.Conn"
GO_MOVED: Final = "Go, both deadlines moved"

# a module of loadtest.peers and its arguments; "go" is the program loadtest/peers/go/echo
SERVERS: Final[Mapping[str, tuple[str, ...]]] = {
    MOVED: ("echo_deadlined", "moved"),
    PLAIN: ("echo_deadlined", "plain"),
    LEAST: ("echo_deadlined", "least"),
    CONTRACT: ("echo_deadlined", "contract"),
    PURE_MOVED: ("echo_deadlined", "moved"),
    PURE_PLAIN: ("echo_deadlined", "plain"),
    TAX: ("echo_tax", "deadlines"),
    PURE_TAX: ("echo_tax", "deadlines"),
    TOGETHER_TAX: ("echo_tax", "together"),
    CLOCK_TAX: ("echo_tax", "clock"),
    TRIO: ("echo_trio", "plain"),
    TRIO_FAIL_AFTER: ("echo_trio", "fail_after"),
    TRIO_MOVED: ("echo_trio", "moved"),
    ASYNCIO: ("echo_asyncio", "asyncio", "plain"),
    ASYNCIO_TIMEOUT: ("echo_asyncio", "asyncio", "timeout"),
    UVLOOP: ("echo_asyncio", "uvloop", "plain"),
    UVLOOP_TIMEOUT: ("echo_asyncio", "uvloop", "timeout"),
    GO: ("go", "plain"),
    GO_MOVED: ("go", "moved"),
    GO_TAX: ("go", "in_turn"),
}

TAXES: Final = (TAX, PURE_TAX, TOGETHER_TAX, CLOCK_TAX, GO_TAX)

# the same server without its deadlines
BARE: Final[Mapping[str, str]] = {
    MOVED: PLAIN,
    PURE_MOVED: PURE_PLAIN,
    TRIO_FAIL_AFTER: TRIO,
    TRIO_MOVED: TRIO,
    ASYNCIO_TIMEOUT: ASYNCIO,
    UVLOOP_TIMEOUT: UVLOOP,
    GO_MOVED: GO,
}


@dataclass(frozen=True)
class Case:
    """How many connections, and whether the allocator keeps its memory."""

    connections: int
    neutral: bool = True


MAIN: Final = "64 connections"
DEFAULTS: Final = "64 connections, default malloc"
CASES: Final[Mapping[str, Case]] = {
    "1 connection": Case(1),
    MAIN: Case(64),
    "512 connections": Case(512),
    DEFAULTS: Case(64, neutral=False),
}

# glibc: blocks below 1 MiB come from the heap, whose top is not returned to the kernel
KEEP_MEMORY: Final[Mapping[str, str]] = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
    "MALLOC_TOP_PAD_": str(1 << 22),
}


def environment(contestant: str, *, neutral: bool) -> dict[str, str]:
    """Return the whole environment of a server: the build it imports, one core for Go, and the allocator's settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUN"))}
    return {**inherited, **builds.environment(contestant), "GOMAXPROCS": "1", **(KEEP_MEMORY if neutral else {})}


def installed(name: str, module: str, package: str = "") -> Contestant:
    """Make a contestant that is missing if `module` is not installed."""
    return Contestant(name, None if find_spec(module) else f"not installed (pip install {package or module})")


# the tax is measured this many times as long, for a hundred pairs of stretches
_LONGER: Final = 4

METRICS: Final[Mapping[str, Metric]] = {
    "rate": Metric("messages/s", "more"),
    "cpu": Metric("µs/message", "less"),
    "added": Metric("µs/message", "less"),
    "tax": Metric("%", "less"),
    "busy": Metric("% of a core", None),
    "others": Metric("% of both cores", None),
}


class Echo(Benchmark):
    """The benchmark `echo`. Each measurement starts a server of its own."""

    name = "echo"
    title = "TCP echo of 64 bytes, one core: rate, and CPU time per message"
    metrics = METRICS
    targets = (
        Target(MAIN, "rate", MOVED, TRIO, at_least=1.6),
        Target(MAIN, "rate", MOVED, TRIO_FAIL_AFTER, at_least=3.2),
        Target(MAIN, "rate", MOVED, ASYNCIO_TIMEOUT, at_least=1.35),
        Target(MAIN, "rate", MOVED, UVLOOP_TIMEOUT, at_least=1.1),
        Target(MAIN, "added", MOVED, "", at_most=1.0),
        Target(MAIN, "rate", MOVED, PLAIN, at_least=0.98),
        Target(MAIN, "tax", TAX, "", at_most=2.0),
    )

    bare = BARE

    def __init__(self, warm: float = 0.3, seconds: float = 1.0, cases: Sequence[str] = tuple(CASES)) -> None:
        self._warm = warm
        self._seconds = seconds
        self._cases = cases
        # CPU time of a message, by contestant and case, as last measured
        self._cpu: dict[tuple[str, str], float] = {}

    def contestants(self) -> Sequence[Contestant]:
        client.compiled()  # nothing can be measured without it
        compiled, _ = builds.contestants()
        missing = dict.fromkeys((PLAIN, MOVED, LEAST, CONTRACT, TAX, TOGETHER_TAX, CLOCK_TAX), compiled.missing)
        found = []
        for name, (kind, *arguments) in SERVERS.items():
            if kind == "go":
                found.append(golang.contestant(name))
            elif "uvloop" in arguments:
                found.append(installed(name, "uvloop"))
            else:
                found.append(Contestant(name, missing.get(name)))
        return found

    def cases(self) -> Sequence[str]:
        return self._cases

    def skips(self, contestant: str, case: str) -> str | None:
        if case == DEFAULTS and contestant in (GO, GO_MOVED, GO_TAX):
            return "Go has an allocator of its own"
        return None

    def saturates(self, case: str) -> bool:
        # one connection waits for each other's messages
        return CASES[case].connections > 1

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        if contestant in TAXES:
            return self._measure_tax(contestant, case)
        figures = in_quiet(lambda: self._measure(contestant, case))
        if bare := BARE.get(contestant):
            if (bare, case) not in self._cpu:
                in_quiet(lambda: self._measure(bare, case))
            figures["added"] = figures["cpu"] - self._cpu[bare, case]
        return figures

    def _measure_tax(self, contestant: str, case: str) -> dict[str, float]:
        with _server(contestant, case) as server:
            client.exchange(server.port, server.pid, CASES[case].connections, self._warm, _LONGER * self._seconds)
            if not server.wait_for(lambda server: bool(server.records), START):
                raise RuntimeError(f"the server did not say what its deadlines cost:\n{''.join(server.output)}")
            return {"tax": server.records[-1]["tax"]}

    def _measure(self, contestant: str, case: str) -> dict[str, float]:
        with _server(contestant, case) as server, neighbours(server.pid) as others:
            found = client.exchange(server.port, server.pid, CASES[case].connections, self._warm, self._seconds)
        if not found["messages"]:
            raise RuntimeError(f"no message came back in {self._seconds:g} s")
        cpu = self._cpu[contestant, case] = found["cpu"] / found["messages"] * 1e6
        return {
            "rate": found["messages"] / found["seconds"],
            "cpu": cpu,
            "busy": found["cpu"] / found["seconds"] * 100,
            "others": others.share,
        }

    def quick(self) -> Self:
        return type(self)(warm=0.05, seconds=0.2, cases=(MAIN,))


def _server(contestant: str, case: str) -> AbstractContextManager[Server]:
    kind, *arguments = SERVERS[contestant]
    start = [golang.program("echo")] if kind == "go" else [sys.executable, "-m", f"loadtest.peers.{kind}"]
    around = environment(contestant, neutral=CASES[case].neutral)
    return running([*start, *arguments], core=SERVER_CORE, environment=around)


BENCHMARK = Echo()
