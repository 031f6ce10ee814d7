"""Requests per second over HTTP/1.1 and CPU time per request, beside common servers; over TLS, and websockets, too.

Facts      A client in C sends requests over 64 connections from one core, the server has the other. All keep their
           memory (see `echo`); one case shows malloc's defaults. A server that wakes its client for each response pays
           for that. The echo of a websocket's message counts as a request.
Hazard     An error is answered faster than a page. A server that waits for its client shows the client's rate.
Answer     Every server must first answer each page correctly. One response that is not 2xx, one socket error, or one
           echo that is not the message, and there is no figure. If `busy` is far below 100 %, the server waited, or
           shared its core. CPU time includes all threads and processes of a server.
Cost       wrk parses responses but does not compare them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from ..servers import tool
from .contest import Benchmark, Contestant
from .web_servers import CASES, ENTRIES, MAIN, load, serving


class Web(Benchmark):
    """The benchmark `http`. Each measurement starts a server; "closing" is one request per connection."""

    def __init__(self, seconds: int = 2, cases: Sequence[str] = tuple(CASES)) -> None:
        super().__init__("http", cases)
        self._seconds = seconds

    def contestants(self) -> Sequence[Contestant]:
        tool("wrk")  # nothing can be measured without it
        return [entry.contestant() for entry in ENTRIES.values()]

    def skips(self, contestant: str, case: str) -> str | None:
        return ENTRIES[contestant].refuses(CASES[case]) or CASES[case].missing

    def saturates(self, case: str) -> bool:
        return CASES[case].saturates

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        asked = CASES[case]
        with serving(ENTRIES[contestant], asked) as server:
            load(server, asked, 1)  # it is warm now
            done = load(server, asked, self._seconds)
        found = {"rate": done.rate, "cpu": done.cpu / done.number * 1e6, "busy": done.busy}
        if done.p99:
            found |= {"p50": done.p50 * 1e3, "p99": done.p99 * 1e3, "wakes": done.wakes / done.number}
        return found

    def quick(self) -> Self:
        return type(self)(seconds=1, cases=(MAIN,))


BENCHMARK = Web()
