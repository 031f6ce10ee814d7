"""Two HTTP servers at once, loaded in turn for a second each: requests of ours for one of theirs.

Facts      A shared machine may be half as fast again in one second as in another, and stays so for some time. `http`
           measures two servers a minute apart.
Hazard     The ratio of two such rates is that of the machine, unless they are medians of very many.
Answer     Both servers run, and wrk loads each for a second, in the order ours, theirs, theirs, ours; each second is
           compared with the other server's beside it. The median of the pairs is one repetition, with two new starts.
Cost       The server that is not loaded must sleep. uvicorn, hypercorn and granian wake now and then, at no visible
           cost.

Servers, core, settings and the case (a hello over 64 kept connections) are those of `http`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final, Self

from ..servers import Server, tool
from . import wrk
from .contest import Benchmark, Contestant, Metric, Target
from .echo import environment
from .web import CASES, CONNECTIONS, MAIN
from .web_servers import ENTRIES, GO, GRANIAN, HYPERCORN, OURS, OURS_H11, UVICORN_FAST, UVICORN_H11, serving

# the servers that each of ours is compared with
RIVALS: Final[Mapping[str, Sequence[str]]] = {OURS: (GO, GRANIAN, UVICORN_FAST), OURS_H11: (UVICORN_H11, HYPERCORN)}


class Duel(Benchmark):
    """The benchmark `duel`. A case is the other server. `pairs` of seconds per repetition; an even number."""

    name = "duel"
    title = "HTTP/1.1, one core, a hello: requests of ours for one of theirs, in turn"
    metrics: Mapping[str, Metric] = {"requests": Metric("for one of theirs", "more")}
    targets = (
        Target(UVICORN_H11, "requests", OURS_H11, "", at_least=1.6),
        Target(HYPERCORN, "requests", OURS_H11, "", at_least=6),
        Target(UVICORN_FAST, "requests", OURS, "", at_least=1.25),
        Target(GRANIAN, "requests", OURS, "", at_least=1.25),
        Target(GO, "requests", OURS, "", at_least=0.9),
    )

    def __init__(self, pairs: int = 8) -> None:
        self._pairs = pairs

    def contestants(self) -> Sequence[Contestant]:
        tool("wrk")  # nothing can be measured without it
        return [ENTRIES[name].contestant() for name in RIVALS]

    def cases(self) -> Sequence[str]:
        return [theirs for rivals in RIVALS.values() for theirs in rivals]

    def skips(self, contestant: str, case: str) -> str | None:
        if case not in RIVALS[contestant]:
            return "reads heads with another parser"
        missing = ENTRIES[case].contestant().missing
        return None if missing is None else f"{case} is missing: {missing}"

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        around = environment(contestant, neutral=True)
        with serving(ENTRIES[contestant], around) as ours, serving(ENTRIES[case], around) as theirs:
            for server in (ours, theirs):
                _rate(server)
            return {"requests": statistics.median(self._ratios(ours, theirs))}

    def quick(self) -> Self:
        return type(self)(pairs=2)

    def _ratios(self, ours: Server, theirs: Server) -> list[float]:
        found = []
        for _ in range(self._pairs // 2):
            first, second, third, fourth = (_rate(server) for server in (ours, theirs, theirs, ours))
            found += [first / second, fourth / third]
        return found


def _rate(server: Server) -> float:
    """Load the server for one second, and return its requests per second."""
    done = wrk.load(f"{server.url}{CASES[MAIN].path}", CONNECTIONS, 1)
    return done.number / done.seconds


BENCHMARK = Duel()
