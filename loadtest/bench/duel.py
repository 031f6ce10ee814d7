"""Two HTTP servers at once, loaded in turn for a second each: requests of ours for one of theirs.

Facts      A shared machine may be half as fast again in one second as in another, and stays so for some time. `http`
           measures two servers a minute apart.
Hazard     The ratio of two such rates is that of the machine, unless they are medians of very many.
Answer     Both servers run, and wrk loads each for a second, in the order ours, theirs, theirs, ours; each second is
           compared with the other server's beside it. The median of the pairs is one repetition, with two new starts.
Cost       The server that is not loaded must sleep. uvicorn, hypercorn and granian wake now and then, at no visible
           cost.

Servers, core, settings and cases are those of `http`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final, Self

from ..servers import Server, tool
from . import wrk
from .contest import Benchmark, Contestant, Metric, Target
from .echo import environment
from .web_cases import BROWSER, CASES, CLOSING, ITEM, JSON, LARGE, MAIN, PIECES, SLEEP, UPLOAD
from .web_servers import (
    APP,
    ENTRIES,
    GO,
    GRANIAN_ST,
    HYPERCORN,
    OURS,
    OURS_H11,
    OURS_UVLOOP,
    UVICORN_FAST,
    UVICORN_H11,
    serving,
)

# the servers that each of ours is compared with
RIVALS: Final[Mapping[str, Sequence[str]]] = {
    OURS: (UVICORN_FAST, GRANIAN_ST, GO),
    OURS_UVLOOP: (UVICORN_FAST, GRANIAN_ST),
    OURS_H11: (UVICORN_H11, HYPERCORN),
}
DUELS: Final[Mapping[str, tuple[str, str]]] = {
    f"{case}; {theirs}": (case, theirs)
    for theirs in dict.fromkeys(theirs for rivals in RIVALS.values() for theirs in rivals)
    for case in CASES
}


class Duel(Benchmark):
    """The benchmark `duel`. A case is one of `http` and the other server. `pairs` of seconds per repetition; an even
    number."""

    name = "duel"
    title = "HTTP/1.1, one core: requests of ours for one of theirs, in turn"
    metrics: Mapping[str, Metric] = {"requests": Metric("for one of theirs", "more")}
    targets = (
        Target(f"{MAIN}; {UVICORN_H11}", "requests", OURS_H11, "", at_least=1.6),
        Target(f"{MAIN}; {HYPERCORN}", "requests", OURS_H11, "", at_least=6),
        Target(f"{MAIN}; {UVICORN_FAST}", "requests", OURS, "", at_least=1.6),
        Target(f"{MAIN}; {GRANIAN_ST}", "requests", OURS, "", at_least=1.7),
        Target(f"{MAIN}; {GO}", "requests", OURS, "", at_least=1.15),
        Target(f"{JSON}; {UVICORN_FAST}", "requests", OURS, "", at_least=1.4),
        Target(f"{JSON}; {UVICORN_FAST}", "requests", OURS_UVLOOP, "", at_least=1.4),
        Target(f"{JSON}; {GRANIAN_ST}", "requests", OURS, "", at_least=1.25),
        Target(f"{ITEM}; {UVICORN_FAST}", "requests", OURS, "", at_least=1.15),
        Target(f"{PIECES}; {UVICORN_FAST}", "requests", OURS, "", at_least=1.25),
        Target(f"{SLEEP}; {UVICORN_FAST}", "requests", OURS, "", at_least=0.95),
        Target(f"{SLEEP}; {UVICORN_FAST}", "requests", OURS_UVLOOP, "", at_least=1.1),
        Target(f"{CLOSING}; {UVICORN_FAST}", "requests", OURS, "", at_least=1.6),
        Target(f"{CLOSING}; {GRANIAN_ST}", "requests", OURS, "", at_least=0.8),
        Target(f"{BROWSER}; {UVICORN_FAST}", "requests", OURS, "", at_least=1.35),
        Target(f"{UPLOAD}; {UVICORN_FAST}", "requests", OURS, "", at_least=1.4),
        Target(f"{LARGE}; {UVICORN_FAST}", "requests", OURS, "", at_least=1.15),
    )

    repetitions = 10

    def __init__(self, pairs: int = 8) -> None:
        self._pairs = pairs

    def contestants(self) -> Sequence[Contestant]:
        tool("wrk")  # nothing can be measured without it
        return [ENTRIES[name].contestant() for name in RIVALS]

    def cases(self) -> Sequence[str]:
        return tuple(DUELS)

    def skips(self, contestant: str, case: str) -> str | None:
        asked, theirs = DUELS[case]
        if theirs not in RIVALS[contestant]:
            return "compared with other servers"
        if theirs == GO and CASES[asked].app != APP:
            return f"{theirs} serves no application in Python"
        missing = ENTRIES[theirs].contestant().missing
        return None if missing is None else f"{theirs} is missing: {missing}"

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        asked, other = DUELS[case]
        around = environment(contestant, neutral=CASES[asked].neutral)
        with (
            serving(ENTRIES[contestant], around, CASES[asked].app) as ours,
            serving(ENTRIES[other], around, CASES[asked].app) as theirs,
        ):
            for server in (ours, theirs):
                _rate(server, asked)
            return {"requests": statistics.median(self._ratios(ours, theirs, asked))}

    def quick(self) -> Self:
        return type(self)(pairs=2)

    def _ratios(self, ours: Server, theirs: Server, case: str) -> list[float]:
        found = []
        for _ in range(self._pairs // 2):
            first, second, third, fourth = (_rate(server, case) for server in (ours, theirs, theirs, ours))
            found += [first / second, fourth / third]
        return found


def _rate(server: Server, case: str) -> float:
    """Load the server for one second, and return its requests per second."""
    asked = CASES[case]
    done = wrk.load(f"{server.url}{asked.path}", asked.connections, 1, asked.options)
    return done.number / done.seconds


BENCHMARK = Duel()
