"""64-byte messages echoed over TCP, one in flight per connection, with and without deadlines.

Facts      The cost of a deadline shows in the CPU time of a message; kernel, event loop and stream take most of it.
Hazard     glibc returns large receive buffers to the kernel after every message, which halves asyncio's rate and
           favours servers that receive less at a time. A rate that the client limits says nothing about a server.
Answer     The allocator is told to keep such memory, for all servers; one case shows its defaults. `busy` is the share
           of its core that a server used: far below 100 % it waited for the client, or shared its core.
Cost       The client spins on a core of its own: two cores without other load are needed.

Two starts of one server differ by more than its deadlines cost. Exact is the count of `instructions`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Self

from ..servers import Server, running
from . import builds, client, golang
from .contest import Benchmark, Contestant, Metric, Target
from .processes import SERVER_CORE

PLAIN: Final = f"{builds.INSTALLED}, no deadline"
MOVED: Final = f"{builds.INSTALLED}, both deadlines moved"
PURE_PLAIN: Final = f"{builds.PURE}, no deadline"
PURE_MOVED: Final = f"{builds.PURE}, both deadlines moved"
TRIO: Final = "trio.SocketStream"
TRIO_FAIL_AFTER: Final = "trio, fail_after per operation"
TRIO_MOVED: Final = "trio, one scope moved"
ASYNCIO: Final = "asyncio streams"
ASYNCIO_TIMEOUT: Final = "asyncio, timeout per read"
UVLOOP: Final = "uvloop streams"
UVLOOP_TIMEOUT: Final = "uvloop, timeout per read"
GO: Final = "Go net.Conn"
GO_MOVED: Final = "Go, both deadlines moved"

# a module of loadtest.peers and its arguments; "go" is the program loadtest/peers/go/echo
SERVERS: Final[Mapping[str, tuple[str, ...]]] = {
    MOVED: ("echo_trio", "deadlined", "moved"),
    PLAIN: ("echo_trio", "deadlined", "plain"),
    PURE_MOVED: ("echo_trio", "deadlined", "moved"),
    PURE_PLAIN: ("echo_trio", "deadlined", "plain"),
    TRIO: ("echo_trio", "trio", "plain"),
    TRIO_FAIL_AFTER: ("echo_trio", "trio", "fail_after"),
    TRIO_MOVED: ("echo_trio", "trio", "scope"),
    ASYNCIO: ("echo_asyncio", "asyncio", "plain"),
    ASYNCIO_TIMEOUT: ("echo_asyncio", "asyncio", "timeout"),
    UVLOOP: ("echo_asyncio", "uvloop", "plain"),
    UVLOOP_TIMEOUT: ("echo_asyncio", "uvloop", "timeout"),
    GO: ("go", "plain"),
    GO_MOVED: ("go", "moved"),
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

METRICS: Final[Mapping[str, Metric]] = {
    "rate": Metric("messages/s", "more"),
    "cpu": Metric("µs/message", "less"),
    "busy": Metric("% of a core", None),
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
        Target(MAIN, "rate", MOVED, PLAIN, at_least=0.98),
    )

    # the same server without its deadlines
    bare: Mapping[str, str] = {
        MOVED: PLAIN,
        PURE_MOVED: PURE_PLAIN,
        TRIO_FAIL_AFTER: TRIO,
        TRIO_MOVED: TRIO,
        ASYNCIO_TIMEOUT: ASYNCIO,
        UVLOOP_TIMEOUT: UVLOOP,
        GO_MOVED: GO,
    }

    def __init__(self, warm: float = 0.3, seconds: float = 1.0, cases: Sequence[str] = tuple(CASES)) -> None:
        self._warm = warm
        self._seconds = seconds
        self._cases = cases

    def contestants(self) -> Sequence[Contestant]:
        client.compiled()  # nothing can be measured without it
        return [_contestant(name) for name in SERVERS]

    def cases(self) -> Sequence[str]:
        return self._cases

    def skips(self, contestant: str, case: str) -> str | None:
        return "Go has an allocator of its own" if case == DEFAULTS and contestant in (GO, GO_MOVED) else None

    def saturates(self, case: str) -> bool:
        # one connection waits for each other's messages
        return CASES[case].connections > 1

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        with _server(contestant, case) as server:
            found = client.exchange(server.port, server.pid, CASES[case].connections, self._warm, self._seconds)
        if not found["messages"]:
            raise RuntimeError(f"no message came back in {self._seconds:g} s")
        return {
            "rate": found["messages"] / found["seconds"],
            "cpu": found["cpu"] / found["messages"] * 1e6,
            "busy": found["cpu"] / found["seconds"] * 100,
        }

    def quick(self) -> Self:
        return type(self)(warm=0.05, seconds=0.2, cases=(MAIN,))


def _contestant(name: str) -> Contestant:
    kind, *arguments = SERVERS[name]
    if kind == "go":
        return golang.contestant(name)
    if "uvloop" in arguments:
        return Contestant(name, None if find_spec("uvloop") else "not installed (pip install uvloop)")
    return Contestant(name, builds.contestants()[0].missing if name in (PLAIN, MOVED) else None)


def _server(contestant: str, case: str) -> AbstractContextManager[Server]:
    kind, *arguments = SERVERS[contestant]
    start = [golang.program("echo")] if kind == "go" else [sys.executable, "-m", f"loadtest.peers.{kind}"]
    around = builds.surroundings(contestant, neutral=CASES[case].neutral)
    return running([*start, *arguments], core=SERVER_CORE, environment=around)


BENCHMARK = Echo()
