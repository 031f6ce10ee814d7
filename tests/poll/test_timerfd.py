"""Linux's timerfd: fires at its time or after it, never before, and not when it is disarmed."""

from __future__ import annotations

import math
import select
import sys
import time
from collections.abc import Iterator

import pytest

from deadlined.poll.timerfd import TimerFd

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="timerfd is Linux's")

SURELY = 10.0


class Watched:
    """A timer and an edge-triggered wait for it."""

    def __init__(self) -> None:
        self.timer = TimerFd()
        self.epoll = select.epoll()
        self.epoll.register(self.timer.fileno(), select.EPOLLIN | select.EPOLLET)

    def fires(self, within: float = SURELY) -> bool:
        return self.epoll.poll(within) != []


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.epoll.close()
    watched.timer.close()


@pytest.mark.parametrize("seconds", [1e-9, 0.0001, 0.0015, 0.02])
def test_it_fires_and_never_early(watched: Watched, seconds: float) -> None:
    for _ in range(5):
        start = time.perf_counter()
        watched.timer.arm(seconds)
        assert watched.fires()
        assert time.perf_counter() - start >= seconds


@pytest.mark.parametrize("seconds", [0.0, -1.0, -math.inf])
def test_a_time_that_has_come_fires_at_once(watched: Watched, seconds: float) -> None:
    watched.timer.arm(seconds)
    assert watched.fires()


def test_inf_disarms_it(watched: Watched) -> None:
    watched.timer.arm(0.001)
    watched.timer.arm(math.inf)
    assert not watched.fires(0.02)


@pytest.mark.parametrize("seconds", [1e10, 1e19, 1e300])
def test_a_time_that_the_kernel_cannot_count_to_does_not_fire(watched: Watched, seconds: float) -> None:
    watched.timer.arm(0.001)
    watched.timer.arm(seconds)
    assert not watched.fires(0.02)


def test_each_firing_is_an_edge_though_nobody_reads_it(watched: Watched) -> None:
    for _ in range(3):
        watched.timer.arm(0.0001)
        assert watched.fires()
        assert not watched.fires(0.0)


def test_closing_is_idempotent() -> None:
    timer = TimerFd()
    timer.close()
    timer.close()
