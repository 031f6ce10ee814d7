"""Two servers at once, loaded in turn for a second each: requests of ours for one of theirs.

Facts      A shared machine may be 1.5 times as fast at one time as at another, and each lasts for some seconds. `http`
           measures two servers a minute apart.
Hazard     The ratio of two such rates is that of the machine, unless they are medians of very many.
Answer     Both servers run, and each is loaded for a second, in the order ours, theirs, theirs, ours; each second is
           compared with the other server's beside it. The median of the pairs is one repetition, with two new starts.
           `busy` is that of the server that was less busy: both must be what limits their rates.
Cost       The server that is not loaded must sleep. uvicorn, hypercorn and granian wake now and then, at no visible
           cost.

Servers, core, settings and cases are those of `http`; duels.toml says who is compared, and what is wanted. On a machine
that others use, `chrt -r 5 python -m loadtest bench duel` lets nobody else run meanwhile.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final, Self

from ..servers import tool
from .client import Requests
from .contest import Benchmark, Contestant, Target, table
from .web_servers import CASES, ENTRIES, MAIN, load, serving

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

    def saturates(self, case: str) -> bool:
        return CASES[DUELS[case][0]].saturates

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        name, other = DUELS[case]
        asked = CASES[name]
        with serving(ENTRIES[contestant], asked) as ours, serving(ENTRIES[other], asked) as theirs:
            for server in (ours, theirs):
                load(server, asked, 1)
            mine, others = list[Requests](), list[Requests]()
            for _ in range(self._pairs // 2):
                first, second, third, fourth = (load(server, asked, 1) for server in (ours, theirs, theirs, ours))
                mine += first, fourth
                others += second, third
        requests = statistics.median(done.rate / beside.rate for done, beside in zip(mine, others, strict=True))
        busy = min(statistics.median(done.busy for done in side) for side in (mine, others))
        return {"requests": requests, "busy": busy}

    def quick(self) -> Self:
        return type(self)(pairs=2, cases=[case for case, (asked, _) in DUELS.items() if asked == MAIN])


BENCHMARK = Duel()
