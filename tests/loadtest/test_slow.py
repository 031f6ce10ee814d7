"""`python -m loadtest slow`: what makes an outcome good. Pure."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.openloop.client import Tally
from loadtest.slow import HONEST_RATE, MODES, TOLERANCE, Outcome

WAITING = round(HONEST_RATE * TOLERANCE)


@pytest.mark.parametrize(
    ("honest", "good"),
    [
        (Tally(due=500, ok=500), True),
        (Tally(due=500, ok=500 - WAITING), True),
        (Tally(due=500, ok=499 - WAITING), False),
        (Tally(due=500, ok=499, errors=Counter({"no answer in time": 1})), False),
        (Tally(), False),
    ],
)
def test_honest_requests_that_still_wait_are_no_service(honest: Tally, good: bool) -> None:
    assert Outcome(MODES[0], 0, [], Counter(), honest).good is good
