"""The churn of keep-alive connections, without sockets: what they do next, and what is made of what they saw."""

from __future__ import annotations

import errno
import io
import math
import os
import pickle
import random
import socket
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from select import EPOLLIN
from time import monotonic

import pytest
from rich.console import Console

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.check.kinds import Deadline
from loadtest.churn.audit import Admin, Audit, Audited, Claim, Row, claims, listed
from loadtest.churn.command import show
from loadtest.churn.connection import Connection, Crowd, Rules, Silent, State, Tally
from loadtest.churn.profiles import MARGIN, PROFILES, Act, Herd
from loadtest.churn.run import Plan, Result
from loadtest.crew import Crew
from loadtest.histogram import milliseconds, record, together
from loadtest.line import source
from loadtest.loop import Loop
from loadtest.target import Target, UnusableTargetError

PERIOD = 5.0
TARGET = Target("http://127.0.0.1/", 2, ("127.0.0.1", 80), "127.0.0.1", "127.0.0.1", "/", False)


@pytest.mark.parametrize("name", PROFILES)
def test_what_a_connection_does_comes_before_its_deadline(name: str) -> None:
    profile = PROFILES[name](PERIOD, random.Random(1))
    acts: Counter[Act] = Counter()
    for number in range(5000):
        now = number * 0.0137
        act, when = profile.next(now)
        acts[act] += 1
        assert now <= when
        assert when == math.inf if act is Act.WAIT else when <= now + PERIOD - MARGIN
        assert now <= profile.back(now) <= now + 3 * PERIOD
    assert set(acts) == set(Act), "each is done"


@pytest.mark.parametrize("name", PROFILES)
def test_nothing_waits_for_a_server_that_does_not_cut(name: str) -> None:
    profile = PROFILES[name](PERIOD, random.Random(1), cuts=False)
    assert Act.WAIT not in {profile.next(number * 0.0137)[0] for number in range(5000)}


@pytest.mark.parametrize("name", PROFILES)
def test_connections_are_opened_within_the_duration(name: str) -> None:
    profile = PROFILES[name](PERIOD, random.Random(1))
    at = [profile.opening(number, 10_000, 30.0) for number in range(10_000)]
    assert at == sorted(at)
    assert at[0] == 0.0
    assert at[-1] < 30.0
    assert (at[-1] > 29.0) is (name == "ramp")
    assert all(PROFILES[name](PERIOD, random.Random(1)).opening(number, 10_000, 0.5) < 0.5 for number in (0, 9_999))


def test_a_burst_acts_at_few_instants() -> None:
    profile = PROFILES["burst"](PERIOD, random.Random(1))
    found = [profile.next(100.0 + number * 0.001) for number in range(1000)]
    instants = {when for act, when in found if act is not Act.WAIT}
    assert len(instants) <= PERIOD / 0.5 + 1


def test_a_herd_speaks_at_one_instant_and_is_cut_at_one() -> None:
    herd = Herd(PERIOD, random.Random(1))
    first = [herd.next(2 * PERIOD + number * 0.001) for number in range(1000)]
    instant = 2 * PERIOD + 0.8 * PERIOD
    assert sum(act is Act.SPEAK and when == instant for act, when in first) > 850
    then = [herd.next(instant + 0.001) for _ in range(1000)]
    assert sum(act is Act.WAIT for act, _ in then) > 850
    assert all(4 * PERIOD <= herd.back(instant + PERIOD) <= 4.5 * PERIOD for _ in range(100))


def test_a_turn_takes_all_events_so_that_the_next_one_knows_since_when_none_was_there() -> None:
    loop, seen = Loop(), Counter[int]()

    def note(number: int, mask: int, now: float, error: float) -> None:
        seen[number] += 1

    with ExitStack() as stack:
        for number in range(1500):
            mine, other = socket.socketpair()
            stack.enter_context(mine)
            stack.enter_context(other)
            other.send(b"x")
            loop.watch(mine.fileno(), EPOLLIN, partial(note, number))
        loop.turn(monotonic())
        loop.close()
    assert seen == dict.fromkeys(range(1500), 1)


def test_a_thousand_connections_come_from_an_address() -> None:
    assert [source(number) for number in (0, 999, 1000, 250_000)] == [
        "127.1.0.1",
        "127.1.0.1",
        "127.1.1.1",
        "127.2.0.1",
    ]
    assert len({source(number) for number in range(0, 200_000, 1000)}) == 200


def tally(**counts: object) -> Tally:
    found = Tally(**counts)  # type: ignore[arg-type]
    for seconds in (0.001, 0.002, 0.020):
        record(found.lateness, seconds)
    return found


def test_tallies_add_up_and_travel() -> None:
    first = tally(opened=3, cut=Counter(fin=2), early_by=0.1, seconds=4.0, answered=Counter({200: 5}))
    second = tally(opened=4, cut=Counter(fin=1, rst=1), early_by=0.3, seconds=3.0, interrupted=True)
    total = together(pickle.loads(pickle.dumps(one)) for one in (first, second))
    assert (total.opened, total.cut, total.early_by, total.seconds) == (7, Counter(fin=3, rst=1), 0.3, 4.0)
    assert total.answered == {200: 5}
    assert total.interrupted
    assert total.lateness.get_total_count() == 6
    assert milliseconds(total.latency)["p99"] is None


BEFORE = {
    ("deadlined_connections_accepted_total", ""): 10.0,
    ("deadlined_connections_closed_total", "idle_timeout"): 5.0,
    ("deadlined_requests_total", "200"): 7.0,
    ("deadlined_deadline_lateness_seconds_bucket", "0.01"): 5.0,
    ("deadlined_deadline_lateness_seconds_bucket", "+Inf"): 5.0,
}
AFTER = BEFORE | {
    ("deadlined_connections_accepted_total", ""): 14.0,
    ("deadlined_connections_closed_total", "idle_timeout"): 8.0,
    ("deadlined_connections_closed_total", "client_closed"): 1.0,
    ("deadlined_requests_total", "200"): 17.0,
    ("deadlined_deadline_lateness_seconds_bucket", "0.01"): 8.0,
    ("deadlined_deadline_lateness_seconds_bucket", "+Inf"): 8.0,
}
SAW = {"opened": 4, "cut": Counter(fin=2), "lost": 1, "closed": 1, "answered": Counter({200: 10})}


def test_the_server_agrees() -> None:
    assert [claim.what for claim in claims(BEFORE, AFTER, tally(**SAW)) if not claim.agree] == []
    # what a deadline ended while a request was on its way, and what the client reset because no deadline came
    after = AFTER | {("deadlined_connections_closed_total", "client_reset"): 3.0}
    saw = tally(**{**SAW, "cut": Counter(fin=1), "raced": 1, "reset": 1, "overdue": 2})
    assert [claim.what for claim in claims(BEFORE, after, saw) if not claim.agree] == []


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"opened": 5}, "connections opened"),
        ({"lost": 0}, "ended by the idle deadline"),
        ({"closed": 0}, "closed by the client"),
        ({"reset": 1}, "reset by the client"),
        ({"answered": Counter({200: 9})}, "responses of 200"),
        ({"answered": Counter({200: 10, 503: 1})}, "responses of 503"),
    ],
)
def test_the_server_disagrees(wrong: dict[str, object], what: str) -> None:
    assert [claim.what for claim in claims(BEFORE, AFTER, tally(**{**SAW, **wrong})) if not claim.agree] == [what]


def test_a_server_cannot_have_been_later_than_its_clients_saw() -> None:
    bounds = [("deadlined_deadline_lateness_seconds_bucket", bound) for bound in ("0.01", "0.05", "0.1")]
    # the first bucket that has grown is the one of the p99
    before, late = BEFORE | dict.fromkeys(bounds, 5.0), AFTER | dict(zip(bounds, (5.0, 5.0, 8.0), strict=True))
    (claim,) = [claim for claim in claims(before, late, tally(**SAW)) if not claim.agree]
    assert claim.what.startswith("cut late by")
    assert claim.server == 100.0


def test_a_claim_tells_both_numbers() -> None:
    found = {claim.what: (claim.client, claim.server) for claim in claims(BEFORE, AFTER, tally(**{**SAW, "opened": 5}))}
    assert found["connections opened"] == (5, 4)
    assert found["reset by the client"] == (0, 0)


def test_the_list_of_connections_is_compared_where_nothing_happened_meanwhile() -> None:
    rows = [
        {"peer": "127.0.0.1:1", "requests": 3, "left": 2.0},
        {"peer": "127.0.0.1:2", "requests": 4, "left": 2.0},  # has made three
        {"peer": "127.0.0.1:3", "requests": 3, "left": 3.5},  # has two seconds left
        {"peer": "127.0.0.1:4", "requests": 9, "left": 9.0},  # has spoken since
        {"peer": "127.0.0.1:5", "requests": 9, "left": 9.0},  # is not known
    ]
    silent = {f"127.0.0.1:{number}": Silent(3, 7.0, 0.0) for number in (1, 2, 3)}
    silent["127.0.0.1:4"] = Silent(3, 10.05, 0.0)
    compared, differ = listed(rows, silent, 10.0, 10.1, rules())
    assert compared == 3
    assert [line.split()[0] for line in differ] == ["127.0.0.1:2", "127.0.0.1:3"]
    # a client that may have read its response late knows less
    later = [rows[0] | {"left": 1.5}]
    assert not listed(later, {"127.0.0.1:1": Silent(3, 7.0, 0.6)}, 10.0, 10.1, rules())[1]
    assert len(listed(later, {"127.0.0.1:1": Silent(3, 7.0, 0.2)}, 10.0, 10.1, rules())[1]) == 1
    # a connection whose deadline the server does not know
    assert not listed([rows[0] | {"left": None}], silent, 10.0, 10.1, rules())[1]
    # without a deadline only the requests count
    assert len(listed(rows, silent, 10.0, 10.1, rules(None))[1]) == 1


class Listing(Admin):
    """An admin listener that answers with what it is made with."""

    def __init__(self, *rows: Row) -> None:
        super().__init__(TARGET)
        self.__dict__["rows"] = rows

    def idle(self) -> list[Row]:
        return list(self.__dict__["rows"])


class Gone(Admin):
    """An admin listener that does not answer."""

    def __init__(self) -> None:
        super().__init__(TARGET)

    def idle(self) -> list[Row]:
        raise UnusableTargetError("it is gone")


class Processes(Crew):
    """Client processes that are only counted."""

    def __init__(self, number: int) -> None:
        self.told: list[object] = []
        self._number = number

    def tell(self, message: object) -> int:
        self.told.append(message)
        return self._number


def test_a_list_is_compared_once_when_every_client_has_answered() -> None:
    far = 1e9  # seconds; these connections have been silent since long before the server was asked
    rows = [{"peer": peer, "requests": 3, "left": 2.0} for peer in ("127.0.0.1:1", "127.0.0.1:2")]
    audit, clients = Audit(Listing(*rows), rules(None)), Processes(2)
    audit.ask(clients)
    audit.ask(clients)  # they owe an answer still
    assert clients.told == ["snapshot"]
    audit.answer({"127.0.0.1:1": Silent(3, -far, 0.0)})
    assert audit.found.compared == 0
    audit.answer({"127.0.0.1:2": Silent(4, -far, 0.0)})
    assert (audit.found.compared, len(audit.found.differ)) == (2, 1)
    # the next list begins with nothing that clients knew before
    audit.ask(clients)
    audit.answer({})
    audit.answer({})
    assert (clients.told, audit.found.compared) == (["snapshot"] * 2, 2)


def test_without_a_list_no_client_is_asked() -> None:
    audit, clients = Audit(Gone(), rules()), Processes(2)
    audit.ask(clients)
    assert (clients.told, audit.found.trouble) == ([], "it is gone")


def rules(deadline: float | None = 5.0) -> Rules:
    return Rules(TARGET, "steady", deadline, 0.02, 10.0, spread=False)


@pytest.mark.parametrize(
    ("deadline", "silences", "early", "late"),
    [(5.0, (0.5, 5.1, 5.2), 1, (100.0, 200.0)), (5.0, (0.5, 4.9), 2, (None, None)), (None, (3.0,), 0, (None, None))],
)
def test_only_cuts_that_were_not_early_have_a_lateness(
    deadline: float | None, silences: tuple[float, ...], early: int, late: tuple[float | None, float | None]
) -> None:
    crowd = Crowd(rules(deadline), random.Random(1), Tally())
    for number, silence in enumerate(silences):
        crowd.open[number] = connection = Connection(number, crowd)
        connection._state, connection._since = State.SILENT, 100.0
        connection._ended_by_server("fin", 100.0 + silence, 0.001)
    crowd.close()
    assert (crowd.tally.cut.total(), crowd.tally.early) == (len(silences), early)
    found = milliseconds(crowd.tally.lateness)
    assert [found["p50"], found["max"]] == [value and pytest.approx(value, rel=0.01) for value in late]
    assert crowd.tally.wrong.get_total_count() == len(silences)


def result(found: Tally) -> Result:
    return Result(Plan(TARGET, 10, 5.0), "x", Deadline("absolute", 5.0), found, "now")


def test_a_good_run_has_no_problems() -> None:
    good = result(tally(seconds=5.0, cut=Counter(fin=3), answered=Counter({200: 9}), raced=2, closed=3, reset=3))
    assert (good.problems, good.tally.invalid) == ([], "")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"early": 2, "early_by": 0.25}, "2 connections were cut before their deadline, by up to 250 ms"),
        ({"lost": 1}, "1 requests were sent before the deadline"),
        ({"overdue": 3}, "3 connections were not cut"),
        ({"answered": Counter({200: 3, 500: 4})}, "4 responses of 500"),
        ({"errors": Counter({"Connection refused": 5})}, "5 Connection refused"),
    ],
)
def test_what_is_wrong_is_told(wrong: dict[str, object], text: str) -> None:
    (line,) = result(tally(seconds=5.0, **wrong)).problems
    assert line.startswith(text)


def test_disagreements_are_problems() -> None:
    found = replace(
        result(tally(seconds=5.0)),
        admin=Audited(
            [Claim("connections opened", 4, 5, False), Claim("x", 1, 1, True)], 2, ["127.0.0.1:1 has 3"], "gone"
        ),
    )
    assert found.problems == [
        "connections opened: the client says 4, the server 5",
        "/connections: 127.0.0.1:1 has 3",
        "the admin listener: gone",
    ]


def test_a_client_that_was_busy_is_no_measurement() -> None:
    assert "had work for 99% of the time" in result(tally(seconds=5.0, busy=0.99)).tally.invalid


def test_a_machine_without_ports_is_no_measurement() -> None:
    lacking = tally(seconds=5.0, opened=3, errors=Counter({os.strerror(errno.EADDRNOTAVAIL): 2}))
    assert result(lacking).tally.invalid.startswith("no free port is left on this machine")


@pytest.mark.parametrize(("deadline", "short"), [(5.0, False), (6.5, True), (None, False)])
def test_a_run_that_is_shorter_than_the_deadline_says_so(deadline: float | None, short: bool) -> None:
    found = replace(result(tally(seconds=5.0, busy=0.5)), deadline=Deadline("none", deadline))
    out = io.StringIO()
    show(Console(width=120, file=out), found)
    assert ("shorter than the deadline: no cut could come" in out.getvalue()) is short
    assert "had work for 50% of the time" in out.getvalue()
