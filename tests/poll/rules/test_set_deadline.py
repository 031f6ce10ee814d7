"""Setting a deadline, and what follows from it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from deadlined.poll import (
    CLOSED,
    EXPIRED,
    OK,
    PARKED,
    FakePort,
    Half,
    PollDesc,
    Poller,
)
from tests.support.poll import FD, INF, LATER, NOW, PAST, SOON, Rig, entry, move, park


class TestSetDeadline:
    """1.3"""

    def test_1_3_1_on_a_closed_half_nothing_happens(self, rig: Rig, desc: PollDesc, half: Half) -> None:
        rig.poller.close(desc)
        before = entry(half), half.seq, len(rig.poller.timers)
        for when in (SOON, PAST, INF):
            move(half, when)
        assert (entry(half), half.seq, len(rig.poller.timers)) == before
        assert half.check() == CLOSED
        assert not half.expired
        assert half.deadline == INF
        rig.pass_to(LATER)
        assert rig.woken() == []

    def test_1_3_2_a_common_deadline_is_known_by_both_halves(self, desc: PollDesc) -> None:
        """Go remembers whether the deadlines were equal; each half of ours is a timer of its own."""
        move(desc, SOON)
        assert desc.read.deadline == desc.write.deadline == SOON
        move(desc.read, LATER)
        assert (desc.read.deadline, desc.write.deadline) == (LATER, SOON)

    def test_1_3_3_overflow_is_not_expiry(self, rig: Rig, half: Half) -> None:
        for huge in (sys.float_info.max, NOW + sys.float_info.max, 1e300):
            move(half, huge)
            assert half.check() == OK
            assert half.deadline == huge
            rig.pass_to(1e299)
            assert half.check() == OK
            rig.now = NOW

    def test_1_3_3_infinity_is_no_deadline(self, rig: Rig, half: Half) -> None:
        move(half, INF)
        assert half.deadline == INF
        assert len(rig.poller.timers) == 0

    def test_1_3_3_the_time_before_all_times_is_expired(self, half: Half) -> None:
        move(half, -INF)
        assert half.check() == EXPIRED
        assert half.deadline == -INF

    def test_1_3_4_one_direction_leaves_the_other_alone(self, half: Half, other: Half) -> None:
        move(half, PAST)
        assert (half.check(), other.check()) == (EXPIRED, OK)
        assert other.deadline == INF

    def test_1_3_4_both_directions_at_once(self, desc: PollDesc) -> None:
        move(desc, PAST)
        assert (desc.read.check(), desc.write.check()) == (EXPIRED, EXPIRED)

    def test_1_3_4_what_was_set_holds_before_any_timer_is_run(self, half: Half) -> None:
        move(half, PAST)
        assert half.park("too late") == EXPIRED
        move(half, SOON)
        assert half.park("in time") == PARKED

    def test_1_3_5_a_common_deadline_ends_both_in_one_poll(self, rig: Rig) -> None:
        """Go: the read timer carries both. Here two timers are due at the same reading of the clock."""
        desc = rig.open_parked(FD)
        move(desc, SOON)
        assert rig.poller.wake_deadline() == SOON
        rig.pass_to(SOON)
        assert rig.woken() == ["reader", "writer"]
        assert (desc.read.check(), desc.write.check()) == (EXPIRED, EXPIRED)

    def test_1_3_6a_the_first_deadline_arms_the_timer(self, rig: Rig, half: Half) -> None:
        """1.3.7 says the same of writes. (Go arms with the current generation; here every change is a new one.)"""
        move(half, SOON)
        assert half.pending
        assert rig.poller.timers.wake_time() == SOON

    @pytest.mark.parametrize("when", [LATER, SOON - 0.5, INF, PAST], ids=["later", "earlier", "none", "past"])
    def test_1_3_6b_a_change_of_a_running_timer_is_a_new_generation(self, half: Half, when: float) -> None:
        """1.3.7 says the same of writes."""
        move(half, SOON)
        generation = half.seq
        move(half, when)
        assert half.seq > generation
        assert half.pending == (NOW < when < INF)

    @pytest.mark.parametrize("when", [LATER, SOON - 0.5])
    def test_1_3_6b_a_moved_deadline_fires_at_its_new_time_only(self, rig: Rig, half: Half, when: float) -> None:
        move(half, SOON)
        move(half, when)
        park(half, "waiter")
        rig.pass_to(when - 0.25)
        assert rig.woken() == []
        rig.pass_to(when)
        assert rig.woken() == ["waiter"]
        assert half.deadline == when
        rig.pass_to(LATER + 10)
        assert rig.poller.statistics().expired == 1

    def test_1_3_6c_the_other_deadline_does_not_disturb_this_one(self, half: Half, other: Half) -> None:
        move(half, SOON)
        before = entry(half), half.seq
        for when in (LATER, SOON, INF, PAST):
            move(other, when)
        assert (entry(half), half.seq) == before

    def test_1_3_7_a_write_deadline_has_a_timer_beside_an_equal_read_deadline(self, rig: Rig, desc: PollDesc) -> None:
        """Go leaves the write timer unused then; what counts is that either can go without the other."""
        move(desc, SOON)
        move(desc.read, INF)
        rig.pass_to(SOON)
        assert (desc.read.check(), desc.write.check()) == (OK, EXPIRED)

    @pytest.mark.parametrize("past", [PAST, NOW, 0.0, -5.0, -INF])
    def test_1_3_8_a_past_deadline_wakes_the_waiter_at_once(self, rig: Rig, half: Half, past: float) -> None:
        park(half, "waiter")
        move(half, past)
        assert rig.woken() == ["waiter"]
        assert half.resume("waiter") == EXPIRED

    @pytest.mark.parametrize("when", [SOON, SOON + 0.5])
    def test_1_3_8_a_past_deadline_counts_at_once_though_the_entry_of_the_old_one_is_overdue(
        self, rig: Rig, half: Half, when: float
    ) -> None:
        """The old deadline has moved on from where its entry lies, and the loop was too busy to file it anew."""
        move(half, SOON)
        move(half, LATER)
        rig.now = SOON + 0.5
        move(half, when)
        assert half.check() == EXPIRED

    def test_a_timeout_of_nothing_counts_at_once_though_the_old_deadline_has_passed_unnoticed(
        self, rig: Rig, desc: PollDesc
    ) -> None:
        move(desc, SOON)
        rig.now = SOON + 0.5
        desc.set_timeout(0.0)
        assert (desc.read.check(), desc.write.check()) == (EXPIRED, EXPIRED)
        assert desc.read.deadline == desc.write.deadline == SOON + 0.5

    def test_1_3_8_a_waiter_of_the_other_direction_sleeps_on(self, rig: Rig, half: Half, other: Half) -> None:
        park(half, "mine")
        park(other, "other's")
        move(half, PAST)
        assert rig.woken() == ["mine"]
        assert other.waiter == "other's"

    def test_1_3_8_a_deadline_of_the_other_direction_does_no_harm_to_an_expired_half(
        self, rig: Rig, half: Half, other: Half
    ) -> None:
        """Go kicks the expired direction again, which is harmless; here nobody can be parked there."""
        move(half, PAST)
        move(other, SOON)
        assert half.check() == EXPIRED
        assert half.park("waiter") == EXPIRED
        assert rig.woken() == []

    def test_1_3_9_the_reader_is_woken_first(self, rig: Rig) -> None:
        move(rig.open_parked(FD), PAST)
        assert rig.woken() == ["reader", "writer"]

    def test_1_3_9_everything_is_settled_before_a_wake(self) -> None:
        """Go: never wake while holding the lock. Here: whoever is told may look at the half and find the truth."""
        seen: list[tuple[Any, int, bool]] = []
        poller = Poller(FakePort(), lambda: NOW, lambda half: seen.append((half.waiter, half.check(), half.ready)))
        desc = poller.open(FD)
        park(desc.read, desc.read)
        move(desc.read, PAST)
        assert seen == [(None, EXPIRED, False)]

    def test_1_3_10_setting_reports_nothing(self, rig: Rig, half: Half) -> None:
        """Also where the deadline has passed already: the operation says so, not the setter."""
        assert [move(half, when) for when in (SOON, PAST, PAST, INF)] == [None] * 4

    def test_a_deadline_must_not_be_nan(self, rig: Rig, half: Half) -> None:
        move(half, SOON)
        before = entry(half), half.seq
        with pytest.raises(ValueError, match="NaN"):
            move(half, float("nan"))
        assert (entry(half), half.seq) == before
        move(half, INF)
        with pytest.raises(ValueError, match="NaN"):
            move(half, float("nan"))
        assert half.check() == OK


class TestConsequences:
    """Of 1.3, as Go's tests would have them."""

    def test_from_a_common_deadline_only_the_write_deadline_is_moved(self, rig: Rig) -> None:
        """Combo flips: Go re-arms the read timer alone at its unchanged time, and arms the write timer."""
        desc = rig.open_parked(FD)
        move(desc, SOON)
        move(desc.write, LATER)
        rig.pass_to(SOON)
        assert rig.woken() == ["reader"]
        assert desc.write.check() == OK
        rig.pass_to(LATER)
        assert rig.woken() == ["writer"]

    def test_from_a_common_deadline_the_read_deadline_is_removed(self, rig: Rig) -> None:
        """Go stops the read timer and arms the write timer at the old time."""
        desc = rig.open_parked(FD)
        move(desc, SOON)
        move(desc.read, INF)
        rig.pass_to(SOON)
        assert rig.woken() == ["writer"]
        assert desc.read.check() == OK
        rig.pass_to(SOON + 3600)
        assert rig.woken() == []

    @pytest.mark.parametrize("common", [SOON + 0.5, LATER + 1, SOON - 0.5])
    def test_from_separate_deadlines_to_a_common_one(self, rig: Rig, common: float) -> None:
        """Both generations are new; nothing happens at either old time."""
        desc = rig.open_parked(FD)
        move(desc.read, SOON)
        move(desc.write, LATER)
        generations = desc.read.seq, desc.write.seq
        move(desc, common)
        assert desc.read.seq > generations[0]
        assert desc.write.seq > generations[1]
        for when in sorted({SOON, LATER} - {w for w in (SOON, LATER) if w >= common}):
            rig.pass_to(when)
            assert rig.woken() == []
        rig.pass_to(common)
        assert sorted(rig.woken()) == ["reader", "writer"]
        assert rig.poller.statistics().expired == 2

    def test_after_a_firing_a_new_deadline_makes_the_half_usable_at_once(self, rig: Rig, half: Half) -> None:
        move(half, SOON)
        rig.pass_to(SOON)
        assert half.check() == EXPIRED
        move(half, LATER)
        assert half.check() == OK
        park(half, "waiter")
        rig.pass_to(LATER)
        assert rig.woken() == ["waiter"]
        assert half.resume("waiter") == EXPIRED

    def test_after_a_firing_no_deadline_makes_the_half_usable_at_once(self, rig: Rig, half: Half) -> None:
        move(half, SOON)
        rig.pass_to(SOON)
        move(half, INF)
        assert half.check() == OK
        assert half.deadline == INF
        park(half, "waiter")
        rig.pass_to(SOON + 3600)
        assert rig.woken() == []

    @pytest.mark.parametrize("back", [SOON, LATER, SOON - 0.5], ids=["the same", "later", "earlier"])
    def test_from_the_future_to_the_past_and_back(self, rig: Rig, half: Half, back: float) -> None:
        """The stopped entry still lies in the queue at its old time: it is no running timer that could be extended."""
        move(half, SOON)
        move(half, PAST)
        assert half.check() == EXPIRED
        assert not half.pending
        move(half, back)
        assert (half.check(), half.deadline, half.pending) == (OK, back, True)
        park(half, "waiter")
        rig.pass_to(back - 0.25)
        assert rig.woken() == []
        rig.pass_to(back)
        assert rig.woken() == ["waiter"]
        assert half.resume("waiter") == EXPIRED
        assert rig.poller.statistics().expired == 1

    @pytest.mark.parametrize("back", [SOON, LATER, SOON - 0.5], ids=["the same", "later", "earlier"])
    def test_from_the_future_to_none_and_back(self, rig: Rig, half: Half, back: float) -> None:
        move(half, SOON)
        move(half, INF)
        assert not half.pending
        assert rig.poller.timers.zombies == 1
        move(half, back)
        assert half.pending
        assert rig.poller.timers.zombies == 0
        park(half, "waiter")
        rig.pass_to(back)
        assert rig.woken() == ["waiter"]

    def test_expiry_is_sticky_until_the_deadline_is_moved(self, rig: Rig, half: Half, edge: int) -> None:
        move(half, SOON)
        rig.pass_to(SOON)
        rig.deliver((FD, edge))
        rig.pass_to(LATER)
        assert [half.reset(), half.park("waiter"), half.check()] == [EXPIRED] * 3

    def test_the_same_deadline_twice_is_no_change_to_the_queue(self, rig: Rig, half: Half) -> None:
        move(half, SOON)
        rig.poller.wake_deadline()
        before = entry(half), len(rig.poller.timers)
        move(half, SOON)
        assert (entry(half), len(rig.poller.timers)) == before
        assert rig.kicked() == []
        rig.pass_to(SOON)
        assert rig.poller.statistics().expired == 1

    def test_extending_is_a_store(self, rig: Rig, half: Half) -> None:
        move(half, SOON)
        rig.poller.wake_deadline()
        _, key, order = entry(half)
        for step in range(1000):
            move(half, SOON + step)
        assert entry(half) == (SOON + 999, key, order)
        assert len(rig.poller.timers) == 1
        assert rig.kicked() == []

    def test_an_extended_deadline_is_filed_anew_once_its_old_time_comes(self, rig: Rig, half: Half) -> None:
        park(half, "waiter")
        move(half, SOON)
        move(half, LATER)
        rig.pass_to(SOON)
        assert rig.woken() == []
        assert rig.poller.wake_deadline() == LATER
        assert rig.poller.statistics().timers.refiled == 1
        rig.pass_to(LATER)
        assert rig.woken() == ["waiter"]
