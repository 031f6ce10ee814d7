"""What a server of this package says of itself (docs/metrics.md) around a churn, beside what its clients know."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from time import monotonic
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ..crew import Crew
from ..histogram import milliseconds
from ..servers import attempts
from ..target import Target, UnusableTargetError
from .connection import Rules, Silent, Tally

# seconds for an answer: a scrape of many worker processes may wait for one
_PATIENCE = 5.0
# seconds that a server gets to count the last connections
_COUNTING = 10.0
# seconds by which a client's clock and the server's list may differ: the client is busy, too
LISTED = 0.1

# a metric's name and the value of its only label of interest, "" without any
Metrics = dict[tuple[str, str], float]
# a connection in the server's list
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Admin:
    """An admin listener. UnusableTargetError of each method says what is wrong with it."""

    target: Target
    token: str = ""

    def metrics(self) -> Metrics:
        """Return every sample by its name and its label; of several labels the code counts, or the first."""
        found: Metrics = {}
        text = self._get("/metrics").decode(errors="replace")
        with suppress(ValueError):  # no metrics at all
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    label = sample.labels.get("code") or next(iter(sample.labels.values()), "")
                    found[sample.name, label] = found.get((sample.name, label), 0.0) + sample.value
        if ("deadlined_connections_accepted_total", "") not in found:
            raise UnusableTargetError(f"{self.target.url} has no metrics of deadlined: is it the address of --admin?")
        return found

    def idle(self) -> list[Row]:
        """Return the idle connections with the least time left."""
        try:
            return list(json.loads(self._get("/connections?phase=idle&sort=left&limit=1000"))["connections"])
        except (ValueError, KeyError, TypeError) as error:
            raise UnusableTargetError(f"{self.target.url} shows no connections: {error!r}") from error

    def _get(self, path: str) -> bytes:
        connection = HTTPConnection(self.target.address[0], self.target.address[1], timeout=_PATIENCE)
        fields = {"Host": self.target.authority} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        try:
            connection.sock = self.target.connect(_PATIENCE)  # with the scope of its address, if it has one
            connection.request("GET", path, headers=fields)
            response = connection.getresponse()
            body = response.read()
        except (OSError, HTTPException) as error:
            raise UnusableTargetError(f"{self.target.url} does not answer {path}: {error}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise UnusableTargetError(f"{self.target.url} answers {path} with {response.status}: {body[:200]!r}")
        return body


def change(before: Metrics, after: Metrics, name: str) -> dict[str, float]:
    """Return by how much each sample of this name has grown, by its label."""
    return {label: value - before.get((of, label), 0.0) for (of, label), value in after.items() if of == name}


@dataclass(frozen=True)
class Claim:
    """One thing that client and server both count."""

    what: str
    client: float
    server: float
    agree: bool


@dataclass
class Audited:
    """What a server says of itself, beside what its clients know.

    `claims`: what both have counted. `compared`: idle connections that both know; `differ`: of these, a line for each
    of which they know different things. `trouble`: why the server's side is not known, "" if it is.
    """

    claims: list[Claim] = field(default_factory=list)
    compared: int = 0
    differ: list[str] = field(default_factory=list)
    trouble: str = ""


def claims(before: Metrics, after: Metrics, tally: Tally) -> Iterable[Claim]:
    """Compare the counts. What a deadline ended while a request was on its way was idle to the server."""
    closed = change(before, after, "deadlined_connections_closed_total")
    requests = change(before, after, "deadlined_requests_total")
    pairs = {
        "connections opened": (tally.opened, change(before, after, "deadlined_connections_accepted_total").get("")),
        "ended by the idle deadline": (tally.cut.total() + tally.lost + tally.raced, closed.get("idle_timeout")),
        "closed by the client": (tally.closed, closed.get("client_closed")),
        "reset by the client": (tally.reset + tally.overdue, closed.get("client_reset")),
        **{f"responses of {code}": (number, requests.get(str(code))) for code, number in tally.answered.items()},
    }
    for what, (client, server) in pairs.items():
        yield Claim(what, client, server or 0, client == (server or 0))
    late = milliseconds(tally.lateness)["p99"]
    if late is not None:
        low, high = _bounds(change(before, after, "deadlined_deadline_lateness_seconds_bucket"), 0.99)
        # what the server calls late has passed when the client sees it
        wrong = milliseconds(tally.wrong)["max"] or 0.0
        yield Claim("cut late by (p99, ms; the server: at most)", late, high * 1000, low * 1000 <= late + wrong)


def _bounds(buckets: Mapping[str, float], part: float) -> tuple[float, float]:
    """Return the bounds of the bucket, of a cumulative histogram, in which this part of the observations ends."""
    below, total = 0.0, max(buckets.values(), default=0.0)
    for bound, number in sorted((float(bound), number) for bound, number in buckets.items()):
        if number >= part * total:
            return below, bound
        below = bound
    return below, below


def listed(
    rows: Iterable[Row], silent: Mapping[str, Silent], asked: float, answered: float, rules: Rules
) -> tuple[int, list[str]]:
    """Compare the server's list with connections that were silent from before it was asked for until after it came.

    `asked` and `answered`: when. `silent`: what is known of each, by its address. Return how many are known to both,
    and a line for each of which the two know different things.
    """
    found, differ, deadline = 0, list[str](), rules.deadline
    tolerance = max(rules.tolerance, LISTED)
    for row in rows:
        mine = silent.get(row["peer"])
        if mine is None or mine.since >= asked:
            continue
        found += 1
        requests, since, wrong = mine
        if row["requests"] != requests:
            differ.append(f"{row['peer']} has made {requests} requests, and the server says {row['requests']}")
        elif deadline is not None and row["left"] is not None:
            least, most = since - wrong + deadline - answered - tolerance, since + deadline - asked + tolerance
            if not least <= row["left"] <= most:
                told = f"{row['left']:.3f}"
                differ.append(f"{row['peer']} has {least:.3f} to {most:.3f} s left, and the server says {told}")
    return found, differ


class Audit:
    """The calls, in this order: `begin`; `ask` and `answer`, again and again; `end`. `found`: the result."""

    def __init__(self, admin: Admin, rules: Rules) -> None:
        self.found = Audited()
        self._admin = admin
        self._rules = rules
        self._before: Metrics = {}
        self._rows: list[Row] = []
        self._asked = self._answered = 0.0
        self._silent: dict[str, Silent] = {}
        self._missing = 0

    def begin(self) -> None:
        """Note what the server has counted, once the connections before have ended there, too."""
        for _ in attempts(_COUNTING, 0.1):
            self._before = self._admin.metrics()
            if not any(number for (name, _), number in self._before.items() if name == "deadlined_connections_open"):
                return

    def ask(self, clients: Crew) -> None:
        """Ask the server for its idle connections, and then the clients for theirs, unless they owe an answer."""
        if self._missing:
            return
        self._asked = monotonic()
        try:
            self._rows = self._admin.idle()
        except UnusableTargetError as error:
            self.found.trouble = str(error)
            return
        self._answered = monotonic()
        self._silent = {}
        self._missing = clients.tell("snapshot")

    def answer(self, silent: dict[str, Silent]) -> None:
        """Take a client's answer; compare when it is the last one."""
        self._silent |= silent
        self._missing -= 1
        if not self._missing:
            compared, differ = listed(self._rows, self._silent, self._asked, self._answered, self._rules)
            self.found.compared += compared
            self.found.differ += differ

    def end(self, tally: Tally) -> None:
        """Compare what both sides have counted, when they agree, or when the server has had time to."""
        try:
            for _ in attempts(_COUNTING, 0.2):
                self.found.claims = list(claims(self._before, self._admin.metrics(), tally))
                if all(claim.agree for claim in self.found.claims):
                    return
        except UnusableTargetError as error:
            self.found.trouble = str(error)
