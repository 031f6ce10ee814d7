"""How many sends may do nothing once their peer has gone, and for how long."""

from __future__ import annotations

from deadlined.http.late_sends import LateSends
from deadlined.http.policy import DISCONNECT_GRACE


def test_the_first_ones_may_do_nothing_and_no_later_one() -> None:
    late = LateSends()
    assert [late.count(100.0, 3) for _ in range(5)] == [True, True, True, False, False]
    assert late.number == 5


def test_they_may_until_the_handler_has_had_its_time_since_the_first() -> None:
    late = LateSends()
    moments = (0.0, DISCONNECT_GRACE / 2, DISCONNECT_GRACE, DISCONNECT_GRACE + 0.5)
    assert [late.count(100.0 + moment, 10) for moment in moments] == [True, True, True, False]
