"""Whether the peer of a websocket is alive, by times and bytes."""

from __future__ import annotations

import pytest

from deadlined.http.liveness import CLOSE, PING, Liveness
from deadlined.http.policy import RULES
from tests.support.http import only

# 1,000 bytes in the time for an answer
TIMEOUTS = only(ws_ping=20, ws_pong=5, write_min_rate=200)


def pinged(untaken: int) -> Liveness:
    """Return what a ping at 120 has asked, behind so many bytes; 10,000 were taken before."""
    liveness = Liveness()
    liveness.hear(100)
    assert liveness.next(TIMEOUTS) == (120, None)
    liveness.ask(PING, 120, 10_000, untaken)
    assert liveness.next(TIMEOUTS) == (125, RULES["ws_pong"])
    return liveness


def test_whatever_comes_answers_a_ping() -> None:
    liveness = pinged(0)
    assert liveness.hear(121)
    assert liveness.next(TIMEOUTS) == (141, None)
    assert not liveness.hear(122)


@pytest.mark.parametrize(
    ("untaken", "taken", "extended"),
    [
        (0, 0, False),
        # the ping itself
        (0, 2, False),
        (5_000, 0, False),
        # less than the rate
        (5_000, 999, False),
        (5_000, 1_000, True),
        # all that was before the ping, which has arrived only now
        (500, 499, False),
        (500, 500, True),
        (500, 502, True),
    ],
)
def test_a_peer_that_takes_what_was_before_the_ping_has_the_same_time_again(
    untaken: int, taken: int, extended: bool
) -> None:
    liveness = pinged(untaken)
    assert liveness.extend(125.5, 10_000 + taken, TIMEOUTS) == extended
    assert liveness.next(TIMEOUTS)[0] == (130.5 if extended else 125)


def test_what_was_sent_after_the_ping_does_not_count() -> None:
    liveness = pinged(2_500)
    assert [liveness.extend(125, 10_000 + taken, TIMEOUTS) for taken in (1_500, 9_000, 19_000)] == [True, True, False]


def test_each_time_as_much_must_be_taken() -> None:
    liveness = pinged(5_000)
    assert [liveness.extend(125, 10_000 + taken, TIMEOUTS) for taken in (3_000, 3_999)] == [True, False]


def test_a_rate_that_is_off_extends_nothing_before_all_was_taken() -> None:
    timeouts = only(ws_pong=5, write_min_rate=float("inf"))
    liveness = pinged(5_000)
    assert not liveness.extend(125, 14_999, timeouts)
    assert liveness.extend(130, 15_000, timeouts)


def test_a_close_is_answered_by_nothing_but_a_close_and_extended_in_the_same_way() -> None:
    timeouts = only(ws_ping=20, ws_pong=5, ws_close=10, write_min_rate=200)
    liveness = pinged(0)
    liveness.ask(CLOSE, 200, 10_000, 5_000)
    assert not liveness.hear(201)
    assert liveness.next(timeouts) == (210, RULES["ws_close"])
    assert not liveness.extend(210, 11_999, timeouts)
    assert liveness.extend(211, 13_999, timeouts)
    assert liveness.next(timeouts) == (221, RULES["ws_close"])


def test_less_than_the_rate_before_a_close_does_not_prolong_it() -> None:
    timeouts = only(ws_close=5, write_min_rate=240)
    for before, extended in ((1_199, False), (1_200, True)):
        liveness = pinged(0)
        liveness.ask(CLOSE, 200, 10_000, before)
        assert liveness.extend(205, 10_000 + before, timeouts) == extended


def test_all_can_be_counted_from_another_time() -> None:
    liveness = pinged(0)
    liveness.begin_again(1000)
    assert liveness.next(TIMEOUTS) == (1020, None)
    timeouts = only(ws_close=10)
    liveness.ask(CLOSE, 1030, 10_000, 0)
    liveness.begin_again(2000)
    assert liveness.next(timeouts) == (2010, RULES["ws_close"])


def test_no_time_is_extended_only_while_the_peer_takes_something() -> None:
    timeouts = only(ws_pong=0, write_min_rate=200)
    liveness = pinged(5_000)
    assert [liveness.extend(120, 10_000 + taken, timeouts) for taken in (0, 1, 1)] == [False, True, False]
