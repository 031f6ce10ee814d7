"""Requests per second over HTTP/1.1 and CPU time per request, beside common servers.

Facts      wrk sends requests over 64 connections from one core, the server has the other. All keep their memory (see
           `echo`); one case shows malloc's defaults. A server that wakes its client for each response pays for that.
Hazard     An error is answered faster than a page. A server that waits for wrk shows wrk's rate.
Answer     Every server must first answer each page correctly. One response that is not 2xx, or one socket error, and
           there is no figure. If `busy` is far below 100 %, the server waited for wrk or shared its core with `others`;
           beside much other load the measurement is repeated. CPU time includes all threads and processes of a server.
Cost       wrk parses responses but does not compare them.

`tax` is the additional CPU time of a request with all deadlines, in percent: one server has them on and off in turn,
which is more precise than two servers or two starts of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self

from ..servers import START, Server, tool
from . import loaded, web_servers, wrk
from .contest import Benchmark, Contestant, ContestantError, Metric, Target
from .echo import environment
from .web_cases import (
    BROWSER,
    CASES,
    CLOSING,
    DEFAULTS,
    ITEM,
    JSON,
    LARGE,
    MAIN,
    MANY,
    PIECES,
    SLEEP,
    UPLOAD,
)
from .web_servers import ENTRIES, GO, GRANIAN_ST, HYPERCORN, OURS, OURS_H11, OURS_H11_OFF, OURS_OFF

# the tax is measured this many times as long, for forty pairs of stretches
_LONGER: Final = 4

METRICS: Final[Mapping[str, Metric]] = {
    "rate": Metric("requests/s", "more"),
    "p50": Metric("ms", "less"),
    "p99": Metric("ms", "less"),
    "cpu": Metric("µs/request", "less"),
    "wakes": Metric("of the client per request", "less"),
    "tax": Metric("%", "less"),
    **loaded.CONTEXT,
}


class Web(Benchmark):
    """The benchmark `http`. Each measurement starts a server; "closing" is one request per connection."""

    name = "http"
    title = "HTTP/1.1, one core, wrk with 64 connections: rate, latency, and CPU time per request"
    metrics = METRICS
    targets = (
        Target(MAIN, "rate", OURS_H11, web_servers.UVICORN_H11, at_least=1.6),
        Target(MAIN, "rate", OURS_H11, HYPERCORN, at_least=6),
        Target(MAIN, "rate", OURS, web_servers.UVICORN_FAST, at_least=1.6),
        Target(MAIN, "rate", OURS, GRANIAN_ST, at_least=1.7),
        Target(MAIN, "rate", OURS, GO, at_least=1.15),
        Target(JSON, "rate", OURS, web_servers.UVICORN_FAST, at_least=1.4),
        Target(JSON, "rate", OURS, GRANIAN_ST, at_least=1.25),
        Target(JSON, "rate", web_servers.OURS_UVLOOP, OURS, at_least=1.0),
        Target(ITEM, "rate", OURS, web_servers.UVICORN_FAST, at_least=1.15),
        Target(PIECES, "rate", OURS, web_servers.UVICORN_FAST, at_least=1.25),
        Target(SLEEP, "rate", web_servers.OURS_UVLOOP, web_servers.UVICORN_FAST, at_least=1.1),
        Target(SLEEP, "rate", OURS, web_servers.UVICORN_FAST, at_least=0.95),
        Target(BROWSER, "rate", OURS, web_servers.UVICORN_FAST, at_least=1.35),
        Target(CLOSING, "rate", OURS, web_servers.UVICORN_FAST, at_least=1.6),
        Target(CLOSING, "rate", OURS, GRANIAN_ST, at_least=0.8),
        Target(UPLOAD, "rate", OURS, web_servers.UVICORN_FAST, at_least=1.4),
        Target(LARGE, "rate", OURS, web_servers.UVICORN_FAST, at_least=1.15),
        Target(MANY, "p99", OURS, GRANIAN_ST, at_most=1.0),
        Target(MAIN, "rate", OURS, OURS_OFF, at_least=0.98),
        Target(MAIN, "rate", OURS_H11, OURS_H11_OFF, at_least=0.98),
        Target(MAIN, "tax", web_servers.TAX, "", at_most=2.0),
        Target(MAIN, "tax", web_servers.TAX_H11, "", at_most=2.0),
    )

    repetitions = 10
    bare: Mapping[str, str] = {OURS: OURS_OFF, OURS_H11: OURS_H11_OFF}

    def __init__(self, warm: int = 1, seconds: int = 2, cases: Sequence[str] = tuple(CASES)) -> None:
        self._warm = warm
        self._seconds = seconds
        self._cases = cases

    def contestants(self) -> Sequence[Contestant]:
        tool("wrk")  # nothing can be measured without it
        return [entry.contestant() for entry in ENTRIES.values()]

    def cases(self) -> Sequence[str]:
        return self._cases

    def skips(self, contestant: str, case: str) -> str | None:
        if contestant == GO and CASES[case].app != web_servers.APP:
            return "serves no application in Python"
        if contestant in web_servers.FLOORS and case not in (MAIN, DEFAULTS):
            return "knows one answer only"
        if contestant in web_servers.TAXES and case != MAIN:
            return "its tax is measured with a hello"
        return None

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        if contestant in web_servers.TAXES:
            return self._measure_tax(contestant, case)
        asked = CASES[case]

        def load(server: Server, seconds: int) -> wrk.Requests:
            return wrk.load(f"{server.url}{asked.path}", asked.connections, seconds, asked.options)

        def measured(server: Server) -> tuple[float, float, Mapping[str, float]]:
            done = load(server, self._seconds)
            more = {"p50": done.p50 * 1e3, "p99": done.p99 * 1e3, "wakes": done.wakes / done.number}
            return done.number, done.seconds, more

        around = environment(contestant, neutral=asked.neutral)
        return loaded.under(
            lambda: web_servers.serving(ENTRIES[contestant], around, asked.app),
            lambda server: self._warm and load(server, self._warm),
            measured,
        )

    def _measure_tax(self, contestant: str, case: str) -> dict[str, float]:
        with web_servers.serving(ENTRIES[contestant], environment(contestant, neutral=True)) as server:
            wrk.load(f"{server.url}{CASES[case].path}", CASES[case].connections, _LONGER * self._seconds)
            if not server.wait_for(lambda server: bool(server.records), START):
                raise ContestantError(f"the server did not say what its deadlines cost:\n{''.join(server.output)}")
            return {"tax": server.records[-1]["tax"]}

    def quick(self) -> Self:
        return type(self)(warm=0, seconds=1, cases=(MAIN,))


BENCHMARK = Web()
