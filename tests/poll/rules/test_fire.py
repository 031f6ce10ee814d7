"""A deadline passes."""

from __future__ import annotations

from typing import Any

from deadlined.poll import (
    EXPIRED,
    OK,
    FakePort,
    Half,
    PollDesc,
    Poller,
)
from tests.support.poll import FD, INF, LATER, NOW, PAST, SOON, Rig, move, park


class TestFire:
    """1.4"""

    def test_1_4_1_a_stale_firing_is_counted_and_does_nothing(self, rig: Rig, half: Half, other: Half) -> None:
        move(half, SOON)
        overtaken = half.seq
        move(half, LATER)
        park(half, "waiter")
        half.callback(half.arg, overtaken, 0.0)
        assert rig.woken() == []
        assert half.check() == OK
        assert half.deadline == LATER
        statistics = rig.poller.statistics()
        assert (statistics.stale, statistics.expired) == (1, 0)

    def test_1_4_1_each_half_has_a_generation_of_its_own(self, rig: Rig, half: Half, other: Half) -> None:
        move(half, SOON)
        park(half, "waiter")
        move(other, SOON)
        move(other, LATER)
        rig.pass_to(SOON)
        assert rig.woken() == ["waiter"]
        assert rig.poller.statistics().stale == 0

    def test_1_4_1_a_deadline_that_is_moved_by_an_earlier_firing_of_the_same_check_does_not_expire(self) -> None:
        """The seq is compared where the timer fires; a firing in between cannot be taken for the new deadline's."""
        halves: list[Half] = []
        wakes: list[Any] = []

        def wake(waiter: Any) -> None:
            wakes.append(waiter)
            move(halves[1], now + 5)

        now = NOW
        poller = Poller(FakePort(), lambda: now, wake)
        for fd in (FD, FD + 1):
            half = poller.open(fd).read
            move(half, SOON)
            park(half, fd)
            halves.append(half)
        now = SOON
        poller.poll(0.0)
        assert wakes == [FD]
        assert halves[1].check() == OK
        assert halves[1].deadline == SOON + 5

    def test_1_4_2_firing_expires_the_reader_and_leaves_no_token(self, rig: Rig, desc: PollDesc) -> None:
        self.assert_fires(rig, desc.read)
        assert desc.write.check() == OK

    def test_1_4_3_firing_expires_the_writer_and_leaves_no_token(self, rig: Rig, desc: PollDesc) -> None:
        self.assert_fires(rig, desc.write)
        assert desc.read.check() == OK

    def assert_fires(self, rig: Rig, half: Half) -> None:
        park(half, "waiter")
        move(half, SOON)
        rig.pass_to(SOON - 1e-9)
        assert rig.woken() == []
        rig.pass_to(SOON)
        assert rig.woken() == ["waiter"]
        assert half.waiter is None
        assert not half.ready
        assert half.missed == half.deadline == SOON
        assert half.resume("waiter") == EXPIRED

    def test_1_4_4_the_reader_is_woken_first(self, rig: Rig) -> None:
        first, second = rig.open_parked(FD), rig.open_parked(FD + 1)
        park_order = ["reader", "writer", "reader 5", "writer 5"]
        move(first, SOON)
        move(second, SOON)
        rig.pass_to(SOON)
        assert rig.woken() == park_order

    def test_1_4_4_firing_changes_no_generation(self, rig: Rig, half: Half) -> None:
        move(half, SOON)
        generation = half.seq
        rig.pass_to(SOON)
        assert half.expired
        assert half.seq == generation

    def test_1_4_5_a_stale_firing_of_one_half_cannot_expire_the_other(
        self, rig: Rig, desc: PollDesc, half: Half, other: Half
    ) -> None:
        """Go compares only the read generation for a common timer, and must bump it when combo flips. Here a timer
        speaks for its own half only."""
        move(desc, SOON)
        overtaken = half.seq
        move(half, INF)
        half.callback(half.arg, overtaken, 0.0)
        assert (half.check(), other.check()) == (OK, OK)
        rig.pass_to(SOON)
        assert (half.check(), other.check()) == (OK, EXPIRED)

    def test_lateness_is_measured_and_the_worst_is_kept(self, rig: Rig, desc: PollDesc) -> None:
        move(desc.read, SOON)
        move(desc.write, SOON + 0.25)
        rig.pass_to(SOON + 0.5)
        statistics = rig.poller.statistics()
        assert (statistics.expired, statistics.worst_lateness) == (2, 0.5)

    def test_a_deadline_set_in_the_past_is_not_a_late_one(self, rig: Rig, half: Half) -> None:
        move(half, PAST)
        statistics = rig.poller.statistics()
        assert (statistics.expired, statistics.worst_lateness) == (0, 0.0)
