"""The service as a whole, against real attackers and a real crowd: the logic of the load test's `slow` and `idle`.

slowhttptest is needed. Without it these tests are skipped, or fail if DEADLINED_REQUIRE_TOOLS=1. Run them alone, with
`-m timed`.
"""

from __future__ import annotations

import os
import shutil
import sys

import pytest

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest import slow
from loadtest.servers import raise_file_limit
from tests.support import idle

# the deadlines are real ones, and must be met while nothing else runs
pytestmark = pytest.mark.timed

REQUIRED = os.environ.get("DEADLINED_REQUIRE_TOOLS") == "1"

# A busy machine makes anything late. Nothing may be early or refused in any attempt; all must be on time in one of
# them.
ATTEMPTS = 3

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def need_slowhttptest() -> None:
    if shutil.which("slowhttptest") is None:
        missing = "slowhttptest is not installed"
        if REQUIRED:
            pytest.fail(missing)
        pytest.skip(missing)


@pytest.mark.parametrize("mode", slow.MODES, ids=[mode.name for mode in slow.MODES])
def test_a_thousand_slow_connections_are_cut_in_time_while_the_honest_are_served(
    mode: slow.Mode, capsys: pytest.CaptureFixture[str]
) -> None:
    need_slowhttptest()
    for attempt in range(1, ATTEMPTS + 1):
        outcome = slow.run_mode(mode, 1000)
        # what no busy machine excuses
        assert outcome.early == 0
        assert not outcome.honest.errors
        assert outcome.honest.ok > 0
        if outcome.good:
            break
        with capsys.disabled():
            print(f"\n{mode.name}, attempt {attempt} of {ATTEMPTS} was not on time: {outcome}")
    assert (len(outcome.cut), outcome.late) == (1000, 0), outcome
    assert outcome.good, outcome


@on_linux
def test_two_thousand_idle_connections_cost_nothing_and_are_cut_as_idle() -> None:
    if raise_file_limit(2_600) < 2_600:
        pytest.skip("too few descriptors: raise the limit (ulimit -n)")
    outcome = idle.measure(2_000, idle=5.0, quiet=1.0)
    assert outcome.reasons == {"idle_timeout": 2_000}
    assert (outcome.cut, outcome.early) == (2_000, 0)
    # a wake per connection would be thousands
    assert outcome.wake_ups < 100
    assert outcome.good, outcome
