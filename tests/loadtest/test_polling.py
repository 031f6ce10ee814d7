"""The scripts of `check` where there is no epoll, which Locust's users follow: the ends that the other clients see.

A busy machine ends nothing early, and may end it late: bounds of times are lower ones.
"""

from __future__ import annotations

import select
from random import Random
from time import monotonic

import pytest

pytest.importorskip("httptools", reason="the load test's extra is not installed: pip install .[loadtest]")

from loadtest.check.attacker import Watch, follow
from loadtest.check.scripts import Facts, Script, Seen, crowd, scripts
from loadtest.churn.connection import Crowd, Rules, Tally
from loadtest.openloop.client import Client, Plan
from loadtest.target import Target, resolve
from tests.support.net import certificates
from tests.support.slow_servers import Rule, slow_server


@pytest.fixture(autouse=True)
def no_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a process that polls, as those of gevent are."""
    monkeypatch.delattr(select, "epoll")


def one(script: Script, target: Target, limit: float) -> Seen:
    return follow(Watch(target, [script], limit))[0]


def followed(rule: Rule, name: str, limit: float, role: str = "") -> Seen:
    """Follow the script of an attack, or one of a role."""
    with slow_server(rule) as server:
        facts = Facts(resolve(server.url), 200_000, websocket=True, limit=limit)
        script = crowd(facts, name)
        if role:
            script = next(it for it in scripts(facts, frozenset({name})) if (it.attack, it.role) == (name, role))
        return one(script, facts.target, limit)


@pytest.mark.parametrize("name", ["silent", "slow-header", "slow-body", "stalled-body", "pipelined"])
def test_a_deadline_ends_what_stalls_and_what_drips(name: str) -> None:
    seen = followed(Rule("absolute", 0.3), name, 10.0)
    assert seen.trouble == ""
    assert seen.seconds is not None
    assert (0.3 if name in ("silent", "slow-header") else 0.0) <= seen.seconds < 10.0
    assert seen.close == "fin"


@pytest.mark.parametrize(
    ("end", "close", "status"), [("fin", "fin", None), ("rst", "rst", None), ("408", "response", 408)]
)
def test_how_it_ends(end: str, close: str, status: int | None) -> None:
    seen = followed(Rule("absolute", 0.2, end=end), "slow-header", 10.0)
    assert (seen.close, seen.status) == (close, status)


def test_an_idle_connection_is_ended_after_its_response() -> None:
    seen = followed(Rule(idle=0.3, delay=0.3), "idle", 30.0)
    # a client that reads the response late sees less of the silence
    assert seen.seconds is not None
    assert (seen.trouble, seen.close) == ("", "fin")


def test_what_is_never_ended_is_held_to_the_limit() -> None:
    seen = followed(Rule("none"), "slow-header", 0.4, role="dripped")
    assert (seen.seconds, seen.close, seen.trouble) == (None, "none", "")
    assert seen.watched >= 0.4
    assert seen.went > 0, "it has dripped"


def test_a_client_that_reads_nothing_sees_the_end_by_poking() -> None:
    seen = followed(Rule("absolute", 0.3, large=400_000), "slow-read", 10.0, role="poked")
    assert seen.trouble == ""
    assert seen.seconds is not None


def test_no_connection_and_no_honest_answer_are_troubles() -> None:
    with slow_server(Rule(raw=b"")) as server:
        target = resolve(server.url)
        script = Script("idle", "stalled", opening=target.get(), answers=1)
        assert "before it answered" in one(script, target, 1.0).trouble
    assert one(script, target, 1.0).trouble == "Connection refused"


def test_an_open_loop_and_a_churn_poll_too() -> None:
    with slow_server(Rule(idle=0.3), certificates().server) as server:
        target = resolve(server.url.replace("http:", "https:"))
        asked = Client(Plan(target, 50.0, 0.4, 10, 10.0)).run(monotonic())
        told: list[tuple[str, str]] = []
        rules = Rules(target, "steady", 0.3, 0.05, 10.0, spread=False)
        crowd = Crowd(rules, Random(1), Tally(), lambda what, seconds, wrong: told.append((what, wrong)))
        crowd.connect(0, monotonic())
        while ("cut", "") not in told:
            crowd.loop.turn(monotonic() + 10.0)
        crowd.close()
    assert (asked.ok, dict(asked.errors)) == (20, {})
    assert ("request", "") in told


def test_a_cut_where_no_deadline_was_found_is_early() -> None:
    """Silent connections were watched for ten seconds, and none was ended."""
    tally = Tally()
    with slow_server(Rule(idle=0.2)) as server:
        rules = Rules(resolve(server.url), "steady", None, 0.05, 10.0, spread=False, watched=10.0)
        crowd = Crowd(rules, Random(1), tally, lambda what, seconds, wrong: None)
        crowd.connect(0, monotonic())
        while not tally.cut.total():
            crowd.loop.turn(monotonic() + 10.0)
        crowd.close()
    assert tally.early == tally.cut.total() == 1


def test_a_request_that_is_never_answered_counts_with_the_time_that_it_waited() -> None:
    with slow_server(Rule(raw=b"")) as server:
        asked = Client(Plan(resolve(server.url), 50.0, 0.1, 10, 10.0)).run(monotonic())
    assert asked.ok == 0
    assert asked.latency.get_total_count() == asked.errors.total() == 5


@pytest.mark.parametrize(
    ("rule", "deadline", "wanted"),
    [
        (Rule(raw=b""), 1.0, ("request", "closed without an answer")),
        (Rule(raw=b"nonsense\r\n\r\n"), 1.0, ("request", "no HTTP")),
        (Rule(status="503 Busy"), 1.0, ("request", "status 503")),
        (Rule(idle=0.2), 9.2, ("cut", " s before the deadline")),
        (Rule(), 0.3, ("cut", "not cut")),
    ],
)
def test_what_is_wrong_is_told(rule: Rule, deadline: float, wanted: tuple[str, str]) -> None:
    told: list[tuple[str, str]] = []
    with slow_server(rule) as server:
        rules = Rules(resolve(server.url), "steady", deadline, 0.05, 0.5, spread=False)
        crowd = Crowd(rules, Random(1), Tally(), lambda what, seconds, wrong: told.append((what, wrong)))
        crowd.connect(0, monotonic())
        while not any(what == wanted[0] and wanted[1] in wrong for what, wrong in told):
            crowd.loop.turn(monotonic() + 10.0)
        crowd.close()
