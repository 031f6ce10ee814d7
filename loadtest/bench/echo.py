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

from collections.abc import Mapping, Sequence
from typing import Final, Self

from ..servers import running
from . import builds, client
from .contest import Contestant, Metric, Target
from .processes import SERVER_CORE
from .programs import Programs

PLAIN: Final = f"{builds.INSTALLED}, no deadline"
MOVED: Final = f"{builds.INSTALLED}, both deadlines moved"
TRIO: Final = "trio.SocketStream"
TRIO_FAIL_AFTER: Final = "trio, fail_after per operation"
ASYNCIO_TIMEOUT: Final = "asyncio, timeout per read"
UVLOOP_TIMEOUT: Final = "uvloop, timeout per read"

# connections by case
MAIN: Final = "64 connections"
DEFAULTS: Final = "64 connections, default malloc"
CASES: Final[Mapping[str, int]] = {"1 connection": 1, MAIN: 64, "512 connections": 512, DEFAULTS: 64}


class Echo(Programs):
    """The benchmark `echo`. Each measurement starts a server of its own."""

    name = "echo"
    title = "TCP echo of 64 bytes, one core: rate, and CPU time per message"
    metrics: Mapping[str, Metric] = {
        "rate": Metric("messages/s", "more"),
        "cpu": Metric("µs/message", "less"),
        "busy": Metric("% of a core", None),
    }
    targets = tuple(
        Target(MAIN, "rate", MOVED, theirs, at_least=ratio)
        for theirs, ratio in (
            (TRIO, 1.6),
            (TRIO_FAIL_AFTER, 3.2),
            (ASYNCIO_TIMEOUT, 1.35),
            (UVLOOP_TIMEOUT, 1.1),
            (PLAIN, 0.98),
        )
    )

    # the same server without its deadlines
    bare: Mapping[str, str] = {
        MOVED: PLAIN,
        f"{builds.PURE}, both deadlines moved": f"{builds.PURE}, no deadline",
        TRIO_FAIL_AFTER: TRIO,
        "trio, one scope moved": TRIO,
        ASYNCIO_TIMEOUT: "asyncio streams",
        UVLOOP_TIMEOUT: "uvloop streams",
        "Go, both deadlines moved": "Go net.Conn",
    }

    def __init__(self, warm: float = 0.3, seconds: float = 1.0, cases: Sequence[str] = tuple(CASES)) -> None:
        self._warm = warm
        self._seconds = seconds
        self._cases = cases

    def contestants(self) -> Sequence[Contestant]:
        client.compiled()  # nothing can be measured without it
        return super().contestants()

    def cases(self) -> Sequence[str]:
        return self._cases

    def skips(self, contestant: str, case: str) -> str | None:
        return "Go has an allocator of its own" if case == DEFAULTS and contestant.startswith("Go") else None

    def saturates(self, case: str) -> bool:
        # one connection waits for each other's messages
        return CASES[case] > 1

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        around = builds.surroundings(contestant, neutral=case != DEFAULTS)
        with running(self.command(contestant), core=SERVER_CORE, environment=around) as server:
            found = client.exchange(server.port, server.pid, CASES[case], self._warm, self._seconds)
        if not found["messages"]:
            raise RuntimeError(f"no message came back in {self._seconds:g} s")
        return {
            "rate": found["messages"] / found["seconds"],
            "cpu": found["cpu"] / found["messages"] * 1e6,
            "busy": found["cpu"] / found["seconds"] * 100,
        }

    def quick(self) -> Self:
        return type(self)(warm=0.05, seconds=0.2, cases=(MAIN,))


BENCHMARK = Echo()
