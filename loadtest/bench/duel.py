"""Two servers at once, loaded in turn for a second each: requests of ours for one of theirs.

Facts      A shared machine may be half as fast again in one second as in another, and stays so for some time. `http`
           measures two servers a minute apart.
Hazard     The ratio of two such rates is that of the machine, unless they are medians of very many.
Answer     Both servers run, and each is loaded for a second, in the order ours, theirs, theirs, ours; each second is
           compared with the other server's beside it. The median of the pairs is one repetition, with two new starts.
Cost       The server that is not loaded must sleep. uvicorn, hypercorn and granian wake now and then, at no visible
           cost.

Servers, core, settings and cases are those of `http`; duels.toml says who is compared, and what is wanted. On a machine
that others use, `chrt -r 5 python -m loadtest bench duel` lets nobody else run meanwhile.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Self

from ..servers import Server, tool
from .contest import Benchmark, Contestant, Target, table
from .web_servers import CASES, ENTRIES, MAIN, Case, load, serving

# by one of ours and another server, and by case, the requests of ours that are wanted for one of theirs
RIVALS: Final[Mapping[str, Mapping[str, Mapping[str, float]]]] = table("duels.toml")
# the cases: those of `http` with each of the other servers
DUELS: Final[Mapping[str, tuple[str, str]]] = {
    f"{case}; {theirs}": (case, theirs)
    for theirs in dict.fromkeys(theirs for rivals in RIVALS.values() for theirs in rivals)
    for case, asked in CASES.items()
    if ENTRIES[theirs].refuses(asked) is None
}


class Duel(Benchmark):
    """The benchmark `duel`. `pairs` of seconds per repetition, an even number."""

    def __init__(self, pairs: int = 8, cases: Sequence[str] = tuple(DUELS)) -> None:
        super().__init__("duel", cases)
        self._pairs = pairs
        self.targets = [
            Target(f"{case}; {theirs}", "requests", ours, "", at_least=least)
            for ours, rivals in RIVALS.items()
            for theirs, wanted in rivals.items()
            for case, least in wanted.items()
        ]

    def contestants(self) -> Sequence[Contestant]:
        tool("wrk")  # nothing can be measured without it
        return [ENTRIES[name].contestant() for name in RIVALS]

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

    def _ratios(self, ours: Server, theirs: Server, case: Case) -> Iterator[float]:
        for _ in range(self._pairs // 2):
            first, second, third, fourth = (_rate(server, case) for server in (ours, theirs, theirs, ours))
            yield first / second
            yield fourth / third


def _rate(server: Server, case: Case) -> float:
    """Load the server for one second, and return its requests per second."""
    done = load(server, case, 1)
    return done.number / done.seconds


BENCHMARK = Duel()
