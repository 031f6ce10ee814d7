"""Go's rules for deadlines of descriptors, one by one, on a poller whose clock and kernel the test plays.

The numbers are those of our reading of Go's netpoll.go and fd_unix.go:

    1.3  setting a deadline      1.4  a timer fires      1.5  reset, wait and ready      1.6  close and reuse

The rules of the read and write layer (1.7) are in test_read_write_layer.py.

Go joins the timers of both directions while their deadlines are equal ("combo"). Here each half keeps its own timer, so
of the rules about joining what is tested is their effect. Nor are there locks: where Go collects goroutines under a
lock and makes them runnable after it, the poller calls `wake`, which only notes them down.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pytest

from deadlined.poll import (
    CLOSED,
    ERROR,
    EXPIRED,
    NOT_POLLABLE,
    OK,
    PARKED,
    READ,
    WRITE,
    FakePort,
    Half,
    PollDesc,
    Poller,
)
from tests.support.poll import INF, NOW, Rig, park

FD = 4
PAST = NOW - 1
SOON = NOW + 1
LATER = NOW + 2


class Setter:
    """How the tests set a deadline: its method has a twin, written out for speed."""

    name = "set_deadline"


@pytest.fixture(params=["set_deadline", "set_timeout"], autouse=True)
def setter(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test runs once with either method."""
    Setter.name = request.param
    yield
    Setter.name = "set_deadline"


def move(target: Half | PollDesc, when: float) -> object:
    """Set the deadline; the result is the method's, which is none."""
    half = target.read if isinstance(target, PollDesc) else target
    argument = when if Setter.name == "set_deadline" else when - half.poller.clock.now()
    result: object = getattr(target, Setter.name)(argument)
    return result


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def desc(rig: Rig) -> PollDesc:
    return rig.poller.open(FD)


@pytest.fixture(params=["read", "write"])
def side(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def half(desc: PollDesc, side: str) -> Half:
    found: Half = attrgetter(side)(desc)
    return found


@pytest.fixture
def other(desc: PollDesc, side: str) -> Half:
    return desc.write if side == "read" else desc.read


@pytest.fixture
def edge(side: str) -> int:
    """The event that `half` waits for."""
    return READ if side == "read" else WRITE


def entry(half: Half) -> tuple[float, float, int]:
    """Everything that the queue knows of a half's deadline."""
    return half.when, half.key, half.order


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


class TestResetWaitReady:
    """1.5"""

    def test_1_5_1_closed_beats_expired_beats_an_event_error(self, rig: Rig, desc: PollDesc) -> None:
        half = desc.read
        looks = (half.check, half.reset, lambda: half.park("waiter"))
        rig.deliver((FD, READ | WRITE | ERROR))
        assert [look() for look in looks] == [NOT_POLLABLE] * 3
        move(half, PAST)
        assert [look() for look in looks] == [EXPIRED] * 3
        rig.poller.close(desc)
        assert [look() for look in looks] == [CLOSED] * 3

    def test_1_5_1_only_reads_report_an_event_error(self, rig: Rig, desc: PollDesc) -> None:
        """A write hears it from the kernel."""
        rig.deliver((FD, READ | WRITE | ERROR))
        assert desc.read.check() == NOT_POLLABLE
        assert desc.write.check() == OK

    def test_1_5_2_reset_forgets_old_readiness(self, rig: Rig, half: Half, edge: int) -> None:
        rig.deliver((FD, edge))
        assert half.reset() == OK
        assert half.park("waiter") == PARKED

    def test_1_5_2_reset_reports_an_error_and_keeps_the_readiness(self, rig: Rig, half: Half, edge: int) -> None:
        rig.deliver((FD, edge))
        move(half, PAST)
        assert half.reset() == EXPIRED
        move(half, INF)
        assert half.park("waiter") == OK

    def test_1_5_3_errors_come_before_parking(self, rig: Rig, half: Half, edge: int) -> None:
        rig.deliver((FD, edge))
        move(half, PAST)
        assert half.park("waiter") == EXPIRED
        assert half.waiter is None

    @pytest.mark.parametrize("when", [SOON + 5, INF], ids=["moved", "removed"])
    def test_1_5_3_woken_by_a_deadline_that_was_moved_meanwhile_sleep_again(
        self, rig: Rig, half: Half, edge: int, when: float
    ) -> None:
        park(half, "waiter")
        move(half, SOON)
        rig.pass_to(SOON)
        assert rig.woken() == ["waiter"]
        move(half, when)
        assert half.resume("waiter") == PARKED
        rig.deliver((FD, edge))
        assert rig.woken() == ["waiter"]
        assert half.resume("waiter") == OK

    def test_1_5_4a_after_a_wake_readiness_is_taken_without_a_look_at_the_deadline(
        self, rig: Rig, half: Half, edge: int
    ) -> None:
        park(half, "waiter")
        rig.deliver((FD, edge))
        move(half, PAST)
        assert half.resume("waiter") == OK
        assert half.check() == EXPIRED

    def test_1_5_4b_readiness_that_came_before_parking_is_consumed_once(self, rig: Rig, half: Half, edge: int) -> None:
        rig.deliver((FD, edge))
        assert half.park("waiter") == OK
        assert half.park("waiter") == PARKED

    def test_1_5_4c_whatever_happened_before_the_waiter_is_noted_keeps_it_awake(
        self, rig: Rig, desc: PollDesc, half: Half
    ) -> None:
        """Go checks again after it has published the waiter; here nothing can come between the check and that."""
        move(half, SOON)
        rig.pass_to(SOON)
        assert half.park("waiter") == EXPIRED
        rig.poller.close(desc)
        assert half.park("waiter") == CLOSED
        assert half.waiter is None
        assert rig.woken() == []

    def test_1_5_4d_on_resumption_true_only_for_readiness(self, rig: Rig, half: Half, edge: int) -> None:
        park(half, "waiter")
        half.unblock(False)
        assert half.resume("waiter") == PARKED
        half.unblock(True)
        assert half.resume("waiter") == OK

    def test_1_5_5_ready_twice_is_ready_once(self, rig: Rig, half: Half, edge: int) -> None:
        rig.deliver((FD, edge), (FD, edge))
        assert half.park("waiter") == OK
        assert half.park("waiter") == PARKED
        rig.deliver((FD, edge), (FD, edge))
        assert rig.woken() == ["waiter"]

    def test_1_5_5_a_timeout_never_leaves_a_token(self, rig: Rig, half: Half) -> None:
        move(half, SOON)
        rig.pass_to(SOON)
        move(half, PAST)
        move(half, INF)
        assert half.park("waiter") == PARKED

    def test_1_5_5_a_waiter_is_woken_once(self, rig: Rig, half: Half, edge: int) -> None:
        park(half, "waiter")
        move(half, SOON)
        rig.port.post(FD, edge)
        rig.pass_to(SOON)
        move(half, PAST)
        assert rig.woken() == ["waiter"]

    @pytest.mark.parametrize(
        ("mask", "woken"),
        [
            (READ, ["reader"]),
            (WRITE, ["writer"]),
            (READ | WRITE, ["reader", "writer"]),
            (READ | WRITE | ERROR, ["reader", "writer"]),
        ],
    )
    def test_1_5_6_an_event_wakes_those_it_is_about(self, rig: Rig, mask: int, woken: list[str]) -> None:
        """Reader first. How a kernel's mask becomes READ, WRITE and ERROR is each port's own test."""
        rig.open_parked(FD)
        rig.deliver((FD, mask))
        assert rig.woken() == woken

    def test_1_5_6_an_event_error_goes_with_the_next_event(self, rig: Rig, desc: PollDesc) -> None:
        rig.deliver((FD, READ | WRITE | ERROR), (FD, READ))
        assert desc.read.check() == OK

    def test_1_5_7_before_parking_expiry_beats_readiness(self, rig: Rig, half: Half, edge: int) -> None:
        move(half, SOON)
        rig.port.post(FD, edge)
        rig.pass_to(SOON)
        assert half.ready
        assert half.park("waiter") == EXPIRED

    def test_1_5_7_while_parked_readiness_beats_expiry_in_one_poll(self, rig: Rig, half: Half, edge: int) -> None:
        park(half, "waiter")
        move(half, SOON)
        rig.port.post(FD, edge)
        rig.pass_to(SOON)
        assert rig.woken() == ["waiter"]
        assert half.expired
        assert half.resume("waiter") == OK

    def test_1_5_7_while_parked_readiness_beats_expiry_that_came_first(self, rig: Rig, half: Half, edge: int) -> None:
        """The timer woke the waiter, and an event came before it ran: it tries again, a little after its deadline."""
        park(half, "waiter")
        move(half, SOON)
        rig.pass_to(SOON)
        rig.deliver((FD, edge))
        assert rig.woken() == ["waiter"]
        assert half.resume("waiter") == OK

    def test_1_5_7_a_spurious_event_ends_in_the_timeout(self, rig: Rig, half: Half, edge: int) -> None:
        park(half, "waiter")
        move(half, SOON)
        rig.port.post(FD, edge)
        rig.pass_to(SOON)
        assert half.resume("waiter") == OK
        assert half.park("waiter") == EXPIRED

    def test_one_waiter_per_half(self, rig: Rig, half: Half, other: Half) -> None:
        park(half, "first")
        with pytest.raises(RuntimeError, match="double wait"):
            half.park("second")
        assert half.waiter == "first"
        park(other, "second")

    def test_a_waiter_that_gave_up_leaves_room_for_the_next(self, rig: Rig, half: Half, edge: int) -> None:
        park(half, "first")
        half.unpark()
        park(half, "second")
        rig.deliver((FD, edge))
        assert rig.woken() == ["second"]

    def test_readiness_that_nobody_awaits_is_kept(self, rig: Rig, half: Half, edge: int) -> None:
        park(half, "waiter")
        half.unpark()
        rig.deliver((FD, edge))
        assert rig.woken() == []
        assert half.park("waiter") == OK


class TestCloseAndReuse:
    """1.6"""

    def test_1_6_1_close_wakes_both_reader_first_in_new_generations_with_stopped_timers(self, rig: Rig) -> None:
        desc = rig.open_parked(FD)
        move(desc, SOON)
        generations = desc.read.seq, desc.write.seq
        rig.poller.close(desc)
        assert rig.woken() == ["reader", "writer"]
        assert desc.read.seq > generations[0]
        assert desc.write.seq > generations[1]
        assert not desc.read.pending
        assert not desc.write.pending
        assert rig.poller.wake_deadline() == INF

    def test_1_6_1_close_is_idempotent(self, rig: Rig) -> None:
        """In Go the second close is fatal here, because the layer above has refused it already."""
        desc = rig.open_parked(FD)
        rig.poller.close(desc)
        rig.woken()
        rig.poller.close(desc)
        assert rig.woken() == []
        assert rig.port.watched == set()

    def test_1_6_2_a_closed_connection_has_not_timed_out(self, rig: Rig, desc: PollDesc, half: Half, edge: int) -> None:
        park(half, "waiter")
        move(half, SOON)
        rig.port.post(FD, edge)
        rig.pass_to(SOON)
        rig.poller.close(desc)
        assert half.resume("waiter") == CLOSED

    def test_1_6_3_nobody_is_parked_once_the_descriptor_is_deregistered(self) -> None:
        """Deregistered by the close itself, so before the caller closes the descriptor."""
        journal: list[str] = []

        class JournalPort(FakePort):
            def deregister(self, fd: int) -> None:
                super().deregister(fd)
                journal.append("deregister")

        poller = Poller(JournalPort(), lambda: NOW, journal.append)
        desc = poller.open(FD)
        park(desc.read, "reader")
        poller.close(desc)
        assert journal == ["reader", "deregister"]
        assert desc.read.waiter is None

    def test_1_6_4_a_descriptor_that_comes_again_starts_afresh(self, rig: Rig) -> None:
        old = rig.open_parked(FD)
        rig.deliver((FD, READ | WRITE | ERROR))
        move(old, PAST)
        rig.poller.close(old)
        new = rig.poller.open(FD)
        for half in (new.read, new.write):
            assert half.deadline == INF
            assert half.check() == OK
            assert half.park("waiter") == PARKED

    def test_1_6_4_a_firing_left_over_from_the_user_before_is_stale(self, rig: Rig, side: str) -> None:
        old = rig.poller.open(FD)
        half: Half = attrgetter(side)(old)
        move(half, SOON)
        arg, seq = half.arg, half.seq
        rig.poller.close(old)
        new = rig.open_parked(FD)
        move(new, LATER)
        half.callback(arg, seq, 0.0)
        rig.pass_to(SOON)
        assert rig.woken() == []
        assert (new.read.check(), new.write.check()) == (OK, OK)
        assert rig.poller.statistics().stale == 1

    def test_1_6_4_the_entry_of_a_closed_half_keeps_nothing_alive(self, rig: Rig, desc: PollDesc, half: Half) -> None:
        """It stays in the queue as a zombie until it is swept."""
        move(half, SOON)
        rig.poller.close(desc)
        assert half.zombie
        assert half.arg is None

    def test_1_6_5_close_does_not_wait_and_whoever_was_inside_finds_it_closed(
        self, rig: Rig, desc: PollDesc, half: Half, edge: int
    ) -> None:
        """Go's Close waits for the last operation to leave. Here the waiter runs after the close and must not touch the
        descriptor, whatever it was woken for."""
        park(half, "waiter")
        rig.deliver((FD, edge))
        rig.poller.close(desc)
        assert half.resume("waiter") == CLOSED
        assert half.waiter is None

    def test_a_stale_registration_is_evicted_when_the_number_comes_again(self, rig: Rig) -> None:
        """Somebody closed the descriptor behind our back."""
        old = rig.open_parked(FD)
        move(old, SOON)
        new = rig.poller.open(FD)
        assert rig.woken() == ["reader", "writer"]
        assert old.read.resume("reader") == CLOSED
        park(new.read, "new reader")
        rig.pass_to(SOON)
        assert rig.woken() == []
        rig.deliver((FD, READ))
        assert rig.woken() == ["new reader"]

    def test_the_close_of_an_evicted_user_does_not_touch_the_new_one(self, rig: Rig) -> None:
        old = rig.poller.open(FD)
        new = rig.poller.open(FD)
        rig.poller.close(old)
        assert rig.port.watched == {FD}
        park(new.read, "waiter")
        rig.deliver((FD, READ))
        assert rig.woken() == ["waiter"]
        rig.poller.close(new)
        assert rig.port.watched == set()

    @pytest.mark.parametrize("number", [errno.ENOENT, errno.EBADF])
    def test_a_registration_that_the_kernel_has_dropped_is_no_error(self, number: int) -> None:
        rig = Rig(ForgetfulPort(number))
        rig.poller.open(FD)
        new = rig.poller.open(FD)
        rig.poller.close(new)
        assert rig.poller.statistics().descriptors == 0

    def test_any_other_failure_to_deregister_is_told(self) -> None:
        rig = Rig(ForgetfulPort(errno.ENOMEM))
        desc = rig.poller.open(FD)
        with pytest.raises(OSError, match="the kernel says no"):
            rig.poller.close(desc)


class ForgetfulPort(FakePort):
    """A port whose kernel fails every deregistration."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def deregister(self, fd: int) -> None:
        super().deregister(fd)
        raise OSError(self.number, "the kernel says no")
