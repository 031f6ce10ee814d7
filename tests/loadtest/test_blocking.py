"""The scripts of `check` where there is no epoll, which Locust's users follow: the ends that the other clients see.

A busy machine ends nothing early, and may end it late: bounds of times are lower ones.
"""

from __future__ import annotations

import select

import pytest

pytest.importorskip("httptools", reason="the load test's extra is not installed: pip install .[loadtest]")

from loadtest.blocking import NoAnswerError, Talk, follow
from loadtest.check.script import Script, Seen
from loadtest.check.scripts import Facts, crowd, scripts
from loadtest.target import resolve
from tests.support.net import certificates
from tests.support.slow_servers import Rule, slow_server


@pytest.fixture(autouse=True)
def no_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a process that polls, as those of gevent are."""
    monkeypatch.delattr(select, "epoll")


def followed(rule: Rule, name: str, limit: float, role: str = "") -> Seen:
    """Follow the script of an attack, or one of a role."""
    with slow_server(rule) as server:
        facts = Facts(resolve(server.url), 200_000, websocket=True, limit=limit)
        script = crowd(facts, name)
        if role:
            script = next(one for one in scripts(facts, frozenset({name})) if (one.attack, one.role) == (name, role))
        return follow(script, facts.target, limit)


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
        assert "before it answered" in follow(script, target, 1.0).trouble
    assert follow(script, target, 1.0).trouble == "Connection refused"


def test_a_talk() -> None:
    with slow_server(Rule(idle=0.3)) as server:
        talk = Talk(resolve(server.url))
        assert talk.ask() == (200, talk.ask()[1])
        assert talk.keeps_alive
        assert talk.silent(0.05) is None
        assert not talk.gone()
        assert talk.silent(10.0) == "fin"
        assert talk.gone()
        talk.close(reset=True)


def test_a_talk_over_tls() -> None:
    with slow_server(Rule(idle=0.3), certificates().server) as server:
        talk = Talk(resolve(server.url.replace("http:", "https:")))
        assert talk.ask()[0] == 200
        assert not talk.gone()
        assert talk.silent(10.0) == "fin"
        talk.close()


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(raw=b""), "closed without an answer"),
        (Rule(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), "closed without an answer"),
        (Rule(raw=b"nonsense\r\n\r\n"), "no HTTP"),
    ],
)
def test_what_is_no_response_is_told(rule: Rule, text: str) -> None:
    with slow_server(rule) as server:
        talk = Talk(resolve(server.url))
        with pytest.raises(NoAnswerError, match=text):
            talk.ask()
        talk.close()


def test_a_server_that_is_too_late_is_a_timeout() -> None:
    with slow_server(Rule(delay=5.0)) as server:
        talk = Talk(resolve(server.url), patience=0.2)
        with pytest.raises(TimeoutError):
            talk.ask()
        talk.close()
