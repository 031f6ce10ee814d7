"""The clock of a poller's owner: asked, or read here where it is known to be `time.perf_counter()`."""

from __future__ import annotations

import math
import time

import pytest

import deadlined.poll.clock
from deadlined.poll import Clock
from deadlined.timers import COMPILED

READS_C = time.get_clock_info("perf_counter").implementation == "clock_gettime(CLOCK_MONOTONIC)"


def never() -> float:
    raise AssertionError("the owner's clock was asked")


def test_the_owners_clock_is_asked() -> None:
    times = iter([1.0, 5.0, math.inf])
    clock = Clock(lambda: next(times))
    assert [clock.now(), clock.now(), clock.now()] == [1.0, 5.0, math.inf]
    assert not clock.steady


def test_what_it_raises_passes_through() -> None:
    with pytest.raises(AssertionError, match="was asked"):
        Clock(never).now()


@pytest.mark.parametrize("offset", [0.0, 1e6, -3.5])
def test_a_clock_that_is_known_is_read_here_and_is_the_same_clock(offset: float) -> None:
    """Never before what Python read earlier, never after what it reads later: a deadline is neither early nor late."""
    clock = Clock(never, offset)
    assert clock.steady
    for _ in range(10_000):
        earlier, now, later = time.perf_counter() + offset, clock.now(), time.perf_counter() + offset
        assert earlier <= now <= later


def test_compiled_code_reads_it_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlined.poll.clock, "perf_counter", never)
    clock = Clock(never, 0.0)
    if COMPILED and READS_C:
        assert clock.now() <= time.perf_counter()
    else:
        with pytest.raises(AssertionError, match="was asked"):
            clock.now()
