"""The benchmark `churn`: the client notices every lie, and finds none in a small run of ours."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Mapping

import pytest

from tests.support import lying_server as lying

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("matplotlib", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.bench import builds, runner
from loadtest.churn.profiles import Act, Herd, Steady
from loadtest.clients.churn import Crowd, churned
from loadtest.peers.churn_protocol import (
    CLOSE,
    EXPIRED,
    MOVE,
    PATIENCE,
    REPLY,
    REQUEST,
    SET,
    UNKNOWN,
    Account,
    Deadlines,
    Verdict,
)
from loadtest.servers import Usage

INF = math.inf
CHURN = runner.load("churn")


def set_account(due: float = 105.0) -> Account:
    """A connection whose request 1 set a deadline, answered at 100.2."""
    account = Account()
    assert account.ask(due) == 1
    assert account.hear(1, SET, due, 0.0, 100.2) is Verdict.ANSWERED
    return account


class TestTheBooks:
    def test_a_deadline_fires_once_and_in_time(self) -> None:
        account = set_account()
        assert account.hear(1, EXPIRED, 105.0, 0.001, 105.002) is Verdict.FIRED
        assert account.due == INF

    def test_the_second_report_of_one_deadline_is_stale(self) -> None:
        account = set_account()
        account.hear(1, EXPIRED, 105.0, 0.001, 105.002)
        assert account.hear(1, EXPIRED, 105.0, 0.002, 105.003) is Verdict.STALE

    @pytest.mark.parametrize("number", [1, 2], ids=["its number", "the new number"])
    def test_a_deadline_that_was_moved_away_is_stale(self, number: int) -> None:
        account = set_account()
        account.ask(109.0)
        account.hear(2, SET, 109.0, 0.0, 101.1)
        assert account.hear(number, EXPIRED, 105.0, 0.001, 105.002) is Verdict.STALE
        assert account.hear(2, EXPIRED, 109.0, 0.001, 109.002) is Verdict.FIRED

    def test_a_cleared_deadline_is_stale_when_it_fires(self) -> None:
        account = set_account()
        account.ask(INF)
        assert account.hear(2, SET, INF, 0.0, 101.1) is Verdict.ANSWERED
        assert account.hear(1, EXPIRED, 105.0, 0.001, 105.002) is Verdict.STALE
        # without a deadline of its own to name, the server can only name the one that is not set
        assert account.hear(2, EXPIRED, INF, 0.0, 105.002) is not Verdict.FIRED

    def test_a_deadline_that_no_request_has_set_is_stale(self) -> None:
        assert Account().hear(0, EXPIRED, 90.0, 0.1, 100.0) is Verdict.STALE
        assert set_account().hear(0, EXPIRED, 90.0, 0.1, 100.0) is Verdict.STALE
        assert set_account().hear(7, EXPIRED, 105.0, 0.1, 106.0) is Verdict.STALE

    def test_the_last_deadline_may_fire_while_the_next_request_is_on_its_way(self) -> None:
        account = set_account()
        account.ask(109.0)
        assert account.hear(1, EXPIRED, 105.0, 0.001, 105.002) is Verdict.FIRED
        assert account.hear(2, SET, 109.0, 0.0, 105.003) is Verdict.ANSWERED
        assert account.due == 109.0

    def test_a_deadline_that_fires_before_it_is_answered_is_the_answer(self) -> None:
        account = Account()
        account.ask(100.6)
        assert account.waiting
        assert account.hear(1, EXPIRED, 100.6, 0.3, 100.95) is Verdict.FIRED
        assert not account.waiting

    @pytest.mark.parametrize(("lateness", "now"), [(-1e-9, 105.1), (0.0, 104.9)])
    def test_early_is_told_by_either_clock(self, lateness: float, now: float) -> None:
        assert set_account().hear(1, EXPIRED, 105.0, lateness, now) is Verdict.EARLY

    def test_a_deadline_at_another_time_is_wrong(self) -> None:
        account = Account()
        account.ask(105.0)
        assert account.hear(1, SET, 105.00001, 0.0, 100.5) is Verdict.WRONG

    @pytest.mark.parametrize(("number", "kind"), [(0, SET), (2, SET), (1, 9)])
    def test_an_answer_to_nothing_is_wrong(self, number: int, kind: int) -> None:
        account = Account()
        account.ask(105.0)
        assert account.hear(number, kind, 105.0, 0.0, 100.5) is Verdict.WRONG

    def test_a_second_answer_is_wrong(self) -> None:
        assert set_account().hear(1, SET, 105.0, 0.0, 100.5) is Verdict.WRONG

    def test_what_does_not_fire_is_lost_once(self) -> None:
        account = set_account()
        assert not account.overdue(105.0 + PATIENCE)
        assert account.overdue(105.1 + PATIENCE)
        assert not account.overdue(106.0 + PATIENCE)

    def test_what_fires_after_it_was_counted_as_lost_is_nothing_else_besides(self) -> None:
        account = set_account()
        account.overdue(106.0 + PATIENCE)
        assert account.hear(1, EXPIRED, 105.0, 3.0, 108.1) is Verdict.GIVEN_UP
        assert account.hear(1, EXPIRED, 105.0, 3.0, 108.2) is Verdict.STALE

    def test_what_fires_too_late_is_lost_also_if_nobody_has_looked(self) -> None:
        assert set_account().hear(1, EXPIRED, 105.0, PATIENCE + 0.1, 107.2) is Verdict.LOST


class TestAServersBooks:
    def test_a_request_sets_the_deadline_on_the_servers_clock_and_is_answered_on_the_machines(self) -> None:
        deadlines = Deadlines(100.0)
        reply = deadlines.take(REQUEST.pack(1, MOVE, 105.0))
        assert deadlines.due == 5.0
        assert REPLY.unpack(reply or b"") == (1, SET, 105.0, 0.0)

    def test_a_request_to_close_has_no_answer(self) -> None:
        deadlines = Deadlines(0.0)
        assert deadlines.take(REQUEST.pack(1, CLOSE, 5.0)) is None
        assert deadlines.due == 5.0

    @pytest.mark.parametrize(("now", "told"), [(5.5, (1, EXPIRED, 5.0, 0.5)), (4.5, (UNKNOWN, EXPIRED, INF, -INF))])
    def test_a_server_that_is_not_told_which_deadline_has_passed_finds_it_by_its_clock(
        self, now: float, told: tuple[float, ...]
    ) -> None:
        deadlines = Deadlines(0.0)
        deadlines.take(REQUEST.pack(1, MOVE, 5.0))
        assert REPLY.unpack(deadlines.passed(now)) == told
        assert deadlines.due == INF

    @pytest.mark.parametrize(("due", "number"), [(9.0, 2), (5.0, 1), (7.0, UNKNOWN)])
    def test_a_server_that_is_told_reports_what_it_was_told(self, due: float, number: int) -> None:
        deadlines = Deadlines(0.0)
        deadlines.take(REQUEST.pack(1, MOVE, 5.0))
        deadlines.take(REQUEST.pack(2, MOVE, 9.0))
        assert REPLY.unpack(deadlines.passed(9.5, due)) == (number, EXPIRED, due, 9.5 - due)


class Brisk(Steady):
    """Half of the deadlines are moved away in time, the others are let pass, and soon."""

    def next(self, now: float) -> tuple[Act, float]:
        return (Act.SPEAK, now + 0.1) if self.chance.random() < 0.5 else (Act.WAIT, INF)


class MovedOnly(Steady):
    """No deadline passes if the server is right: each is moved, twice before it would."""

    def next(self, now: float) -> tuple[Act, float]:
        return Act.SPEAK, now + self.period / 3


class Hasty(Steady):
    """Deadlines that are moved when they are nearly over."""

    def next(self, now: float) -> tuple[Act, float]:
        return Act.SPEAK, now + 0.9 * self.period


def heard(
    lie: str, profile: type[Steady] = Brisk, patience: float = PATIENCE, seconds: float = 1.0
) -> Mapping[str, float]:
    """What the client says of a server of which each deadline is of 0.2 seconds."""
    with lying.lying_server(lie) as port:
        crowd = Crowd(port, profile(0.2, random.Random(1)), patience)
        return churned(crowd, 10, seconds, lambda: Usage.of(os.getpid()))


@pytest.mark.timed
class TestTheClient:
    def test_finds_nothing_in_an_honest_server(self) -> None:
        found = heard(lying.HONEST)
        assert {name: found[name] for name in ("stale", "early", "lost", "wrong", "broken")} == {
            "stale": 0,
            "early": 0,
            "lost": 0,
            "wrong": 0,
            "broken": 0,
        }
        assert found["firings"] > 0
        assert found["resets"] > 0
        assert 0.0 <= found["p50"] <= found["p99"] <= found["max"]

    @pytest.mark.parametrize("profile", [Steady, Herd])
    def test_finds_nothing_where_connections_are_closed_and_deadlines_cleared(self, profile: type[Steady]) -> None:
        found = heard(lying.HONEST, profile)
        assert sum(found[name] for name in ("stale", "early", "lost", "wrong", "broken")) == 0

    def test_is_not_confused_by_deadlines_that_pass_while_they_are_being_moved(self) -> None:
        found = heard(lying.SLOW, Hasty, seconds=1.5)
        assert sum(found[name] for name in ("stale", "early", "lost", "wrong", "broken")) == 0
        assert found["firings"] > 0

    @pytest.mark.parametrize(
        ("lie", "sin"),
        [
            (lying.STALE, "stale"),
            (lying.FOREIGN, "stale"),
            (lying.TWICE, "stale"),
            (lying.EARLY, "early"),
            (lying.EARLY_DENIED, "early"),
            (lying.GENEROUS, "wrong"),
            (lying.RUDE, "broken"),
        ],
    )
    def test_notices(self, lie: str, sin: str) -> None:
        found = heard(lie)
        assert found[sin] > 0

    def test_notices_a_deadline_that_never_fires(self) -> None:
        assert heard(lying.SILENT, patience=0.2)["lost"] > 0

    def test_expects_no_firing_of_what_it_has_moved(self) -> None:
        assert heard(lying.STALE, MovedOnly)["stale"] > 0
        assert heard(lying.HONEST, MovedOnly)["stale"] == 0


class TestChurn:
    @pytest.mark.parametrize("profile", CHURN.cases())
    @pytest.mark.timed
    def test_no_deadline_of_ours_fires_wrongly(self, profile: str) -> None:
        found = CHURN.quick().measure(builds.PURE, profile)
        assert (found["stale"], found["early"], found["lost"]) == (0, 0, 0)
        assert found["firings"] > 0
        assert found["resets"] > 0
        assert found["connections"] == 200
        assert found.keys() <= CHURN.metrics.keys()

    @pytest.mark.parametrize("contestant", ["trio", "asyncio"])
    @pytest.mark.timed
    def test_the_others_speak_the_same_protocol(self, contestant: str) -> None:
        found = CHURN.quick().measure(contestant, "steady")
        assert (found["stale"], found["early"], found["lost"]) == (0, 0, 0)
        assert found["resets"] > 0

    def test_a_server_that_does_not_start_is_told_with_its_output(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("loadtest.bench.programs.sys.executable", "/bin/echo")
        with pytest.raises(RuntimeError, match=r"does not listen:\n-m loadtest\.peers\.churn"):
            CHURN.quick().measure(builds.PURE, "steady")


def test_every_target_speaks_of_what_there_is() -> None:
    benchmark = runner.load("churn")
    contestants = {contestant.name for contestant in benchmark.contestants()}
    for target in benchmark.targets:
        assert target.case in benchmark.cases()
        assert target.metric in benchmark.metrics
        assert {target.ours, target.theirs or target.ours} <= contestants
        assert target.wanted


def test_a_crowd_closes_what_it_has_opened() -> None:
    # the leak check of the test session sees the rest
    with lying.lying_server(lying.HONEST) as port:
        crowd = Crowd(port, Steady(1.0, random.Random(1)))
        crowd.open(5)
        crowd.close()
    assert crowd.counts[Verdict.ANSWERED] == 5
