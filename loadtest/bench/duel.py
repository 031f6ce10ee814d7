"""Two servers at once, loaded in turn for a second each: requests of ours for one of theirs.

Facts      A shared machine may be half as fast again in one second as in another, and stays so for some time. `http`
           measures two servers a minute apart.
Hazard     The ratio of two such rates is that of the machine, unless they are medians of very many.
Answer     Both servers run, and each is loaded for a second, in the order ours, theirs, theirs, ours; each second is
           compared with the other server's beside it. The median of the pairs is one repetition, with two new starts.
Cost       The server that is not loaded must sleep. uvicorn, hypercorn and granian wake now and then, at no visible
           cost.

Servers, core, settings and cases are those of `http`. On a machine that others use, `chrt -r 5 python -m loadtest bench
duel` lets nobody else run meanwhile.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final, Self

from ..servers import Server, tool
from .contest import Benchmark, Contestant, Metric, Target
from .web_cases import CASES, MAIN, Case, load
from .web_servers import (
    ENTRIES,
    GO,
    GRANIAN_ST,
    HYPERCORN,
    OURS,
    OURS_H11,
    OURS_UVLOOP,
    UVICORN_FAST,
    UVICORN_H11,
    UVICORN_WEBSOCKETS,
    serving,
)

# the servers that each of ours is compared with
RIVALS: Final[Mapping[str, Sequence[str]]] = {
    OURS: (UVICORN_FAST, UVICORN_WEBSOCKETS, GRANIAN_ST, GO),
    OURS_UVLOOP: (UVICORN_FAST, UVICORN_WEBSOCKETS, GRANIAN_ST),
    OURS_H11: (UVICORN_H11, HYPERCORN),
}
DUELS: Final[Mapping[str, tuple[str, str]]] = {
    f"{case}; {theirs}": (case, theirs)
    for theirs in dict.fromkeys(theirs for rivals in RIVALS.values() for theirs in rivals)
    for case, asked in CASES.items()
    if ENTRIES[theirs].refuses(asked) is None
}

# case, ours, theirs, and the requests of ours that are wanted for one of theirs
_WANTED: Final = (
    (MAIN, OURS_H11, UVICORN_H11, 1.6),
    (MAIN, OURS_H11, HYPERCORN, 6.0),
    (MAIN, OURS, UVICORN_FAST, 1.6),
    (MAIN, OURS, GRANIAN_ST, 1.7),
    (MAIN, OURS, GO, 1.15),
    ("Starlette JSON", OURS, UVICORN_FAST, 1.4),
    ("Starlette JSON", OURS_UVLOOP, UVICORN_FAST, 1.4),
    ("Starlette JSON", OURS, GRANIAN_ST, 1.25),
    ("FastAPI", OURS, UVICORN_FAST, 1.15),
    ("Starlette, 20 pieces", OURS, UVICORN_FAST, 1.25),
    ("Starlette, sleeps 10 ms, 256 connections", OURS, UVICORN_FAST, 0.95),
    ("Starlette, sleeps 10 ms, 256 connections", OURS_UVLOOP, UVICORN_FAST, 1.1),
    ("Starlette JSON, closing", OURS, UVICORN_FAST, 1.6),
    ("Starlette JSON, closing", OURS, GRANIAN_ST, 0.8),
    ("a browser's head", OURS, UVICORN_FAST, 1.35),
    ("Starlette, 10 kB up", OURS, UVICORN_FAST, 1.4),
    ("Starlette, 100 kB down", OURS, UVICORN_FAST, 1.15),
    ("hello, TLS", OURS, UVICORN_FAST, 1.2),
    ("websocket, 16 B", OURS, UVICORN_WEBSOCKETS, 1.2),
    ("websocket, 16 B", OURS_UVLOOP, UVICORN_WEBSOCKETS, 1.2),
    ("websocket, 64 KiB", OURS, UVICORN_WEBSOCKETS, 1.2),
    ("websocket, 64 KiB", OURS_UVLOOP, UVICORN_WEBSOCKETS, 1.2),
)


class Duel(Benchmark):
    """The benchmark `duel`. A case is one of `http` and the other server. `pairs` of seconds per repetition; an even
    number."""

    name = "duel"
    title = "HTTP/1.1, one core: requests of ours for one of theirs, in turn"
    metrics: Mapping[str, Metric] = {"requests": Metric("for one of theirs", "more")}
    targets = tuple(
        Target(f"{case}; {theirs}", "requests", ours, "", at_least=wanted) for case, ours, theirs, wanted in _WANTED
    )

    repetitions = 10

    def __init__(self, pairs: int = 8, cases: Sequence[str] = tuple(DUELS)) -> None:
        self._pairs = pairs
        self._cases = cases

    def contestants(self) -> Sequence[Contestant]:
        tool("wrk")  # nothing can be measured without it
        return [ENTRIES[name].contestant() for name in RIVALS]

    def cases(self) -> Sequence[str]:
        return self._cases

    def skips(self, contestant: str, case: str) -> str | None:
        asked, theirs = DUELS[case]
        if theirs not in RIVALS[contestant]:
            return "compared with other servers"
        if (missing := ENTRIES[theirs].contestant().missing) is not None:
            return f"{theirs} is missing: {missing}"
        return ENTRIES[contestant].refuses(CASES[asked]) or CASES[asked].missing

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        name, other = DUELS[case]
        asked = CASES[name]
        with serving(ENTRIES[contestant], asked) as ours, serving(ENTRIES[other], asked) as theirs:
            for server in (ours, theirs):
                _rate(server, asked)
            return {"requests": statistics.median(self._ratios(ours, theirs, asked))}

    def quick(self) -> Self:
        return type(self)(pairs=2, cases=[case for case, (asked, _) in DUELS.items() if asked == MAIN])

    def _ratios(self, ours: Server, theirs: Server, case: Case) -> list[float]:
        found = []
        for _ in range(self._pairs // 2):
            first, second, third, fourth = (_rate(server, case) for server in (ours, theirs, theirs, ours))
            found += [first / second, fourth / third]
        return found


def _rate(server: Server, case: Case) -> float:
    """Load the server for one second, and return its requests per second."""
    done = load(server, case, 1)
    return done.number / done.seconds


BENCHMARK = Duel()
