"""The poller: batches of events, how long it sleeps and when it is kicked, and its end."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from deadlined.poll import CLOSED, EXPIRED, READ, WRITE, Clock, FakePort, Half, PollDesc, Poller, open_port
from deadlined.timers import Timer
from tests.support.poll import FD, INF, LATER, NOW, PAST, SOON, Rig, assert_sound, park, socket_pair


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def desc(rig: Rig) -> PollDesc:
    return rig.poller.open(FD)


@pytest.fixture
def half(desc: PollDesc) -> Half:
    return desc.read


@pytest.fixture
def other(desc: PollDesc) -> Half:
    return desc.write


class TestBatches:
    """One poll deals with all that has come before any waiter runs."""

    def test_an_event_of_an_unknown_descriptor_is_ignored_and_counted(self, rig: Rig) -> None:
        rig.open_parked(FD)
        rig.deliver((FD + 1, READ | WRITE), (FD, READ))
        assert rig.woken() == ["reader"]
        statistics = rig.poller.statistics()
        assert (statistics.polls, statistics.events, statistics.unknown) == (1, 2, 1)

    def test_events_of_a_descriptor_that_an_earlier_wake_closed_are_ignored(self) -> None:
        descs: dict[int, PollDesc] = {}
        wakes: list[int] = []

        def wake(fd: int) -> None:
            wakes.append(fd)
            if fd == FD:
                poller.close(descs[FD + 1])

        port = FakePort()
        poller = Poller(port, lambda: NOW, wake)
        for fd in (FD, FD + 1):
            descs[fd] = poller.open(fd)
            park(descs[fd].read, fd)
        port.post(FD, READ)
        port.post(FD + 1, READ)
        poller.poll(0.0)
        assert wakes == [FD, FD + 1]
        assert descs[FD + 1].read.resume(FD + 1) == CLOSED
        assert poller.statistics().unknown == 1

    def test_events_come_before_the_deadlines_of_the_same_poll(self, rig: Rig) -> None:
        first, second = rig.open_parked(FD), rig.open_parked(FD + 1)
        first.read.set_deadline(SOON)
        rig.port.post(second.fd, READ)
        rig.pass_to(SOON)
        assert rig.woken() == ["reader 5", "reader"]

    def test_all_descriptors_and_deadlines_of_a_poll_are_served(self, rig: Rig) -> None:
        descs = [rig.poller.open(fd) for fd in range(10, 1010)]
        for desc in descs:
            park(desc.read, desc.fd)
            park(desc.write, -desc.fd)
            desc.write.set_deadline(SOON)
            rig.port.post(desc.fd, READ)
        rig.pass_to(SOON)
        assert sorted(rig.woken()) == sorted([desc.fd for desc in descs] + [-desc.fd for desc in descs])


class TestSleep:
    """How long the poller sleeps, and when its sleeper is told otherwise."""

    def test_poll_sleeps_no_longer_than_until_the_nearest_deadline(self, rig: Rig, half: Half) -> None:
        half.set_deadline(NOW + 5)
        rig.poller.poll()
        rig.poller.poll(60.0)
        rig.poller.poll(2.0)
        assert rig.port.waits == [5.0, 5.0, 2.0]

    def test_poll_without_a_deadline_sleeps_as_long_as_it_may(self, rig: Rig, half: Half) -> None:
        rig.poller.poll()
        rig.poller.poll(60.0)
        assert rig.port.waits == [INF, 60.0]

    def test_poll_with_no_time_never_blocks(self, rig: Rig, half: Half) -> None:
        half.set_deadline(NOW + 5)
        rig.poller.poll(0.0)
        assert rig.port.waits == [0.0]

    def test_poll_does_not_sleep_while_a_deadline_is_overdue(self, rig: Rig, half: Half) -> None:
        half.set_deadline(SOON)
        rig.now = LATER
        rig.poller.poll()
        assert rig.port.waits[0] <= 0.0
        assert half.check() == EXPIRED

    def test_poll_reads_the_clock_after_it_has_slept(self) -> None:
        class SleepyPort(FakePort):
            def wait(self, timeout: float) -> list[tuple[int, int]]:
                sleepy.now += timeout
                return super().wait(timeout)

        sleepy = Rig(SleepyPort())
        half = sleepy.poller.open(FD).read
        park(half, "waiter")
        half.set_deadline(NOW + 5)
        sleepy.poller.poll()
        assert sleepy.woken() == ["waiter"]

    def test_a_removed_deadline_is_pruned_before_sleeping(self, rig: Rig, half: Half) -> None:
        """So it moves no virtual time, and stores nothing."""
        half.set_deadline(SOON)
        half.set_deadline(INF)
        assert rig.poller.wake_deadline() == INF
        assert len(rig.poller.timers) == 0

    def test_removed_deadlines_are_pruned_down_to_the_first_live_one(self, rig: Rig) -> None:
        descs = [rig.poller.open(fd) for fd in range(10, 20)]
        for i, desc in enumerate(descs):
            desc.read.set_deadline(SOON + i)
        for desc in descs[:7]:
            desc.read.set_deadline(INF)
        assert rig.poller.wake_deadline() == SOON + 7
        assert len(rig.poller.timers) == 3
        assert_sound(rig.poller, *descs)

    def test_the_first_deadline_kicks_the_sleeper(self, rig: Rig, half: Half) -> None:
        assert rig.poller.wake_deadline() == INF
        half.set_deadline(SOON)
        assert rig.kicked() == [SOON]

    def test_only_an_earlier_deadline_kicks(self, rig: Rig, half: Half, other: Half) -> None:
        half.set_deadline(SOON)
        rig.poller.wake_deadline()
        for when in (LATER, SOON + 0.5, SOON):
            other.set_deadline(when)
        assert rig.kicked() == []
        other.set_deadline(SOON - 0.25)
        other.set_deadline(SOON - 0.5)
        assert rig.kicked() == [SOON - 0.25, SOON - 0.5]

    def test_nobody_is_kicked_who_does_not_sleep(self, rig: Rig, half: Half) -> None:
        half.set_deadline(SOON)
        half.set_deadline(INF)
        assert rig.kicked() == []
        rig.poller.wake_deadline()
        rig.poller.poll(0.0)
        half.set_deadline(SOON)
        half.set_deadline(PAST)
        assert rig.kicked() == []

    def test_removing_the_armed_deadline_kicks_to_the_next(self, rig: Rig, half: Half, other: Half) -> None:
        half.set_deadline(SOON)
        other.set_deadline(LATER)
        rig.poller.wake_deadline()
        half.set_deadline(INF)
        assert rig.kicked() == [LATER]
        other.set_deadline(INF)
        assert rig.kicked() == [INF]

    @pytest.mark.parametrize("by", ["past", "close"])
    def test_the_armed_deadline_is_removed_by_expiry_and_by_close_too(
        self, rig: Rig, desc: PollDesc, half: Half, by: str
    ) -> None:
        half.set_deadline(SOON)
        rig.poller.wake_deadline()
        if by == "past":
            half.set_deadline(PAST)
        else:
            rig.poller.close(desc)
        assert rig.kicked() == [INF]

    def test_removing_another_deadline_does_not_kick(self, rig: Rig, half: Half, other: Half) -> None:
        half.set_deadline(SOON)
        other.set_deadline(LATER)
        rig.poller.wake_deadline()
        other.set_deadline(INF)
        assert rig.kicked() == []

    def test_removing_one_of_two_equal_deadlines_does_not_kick(self, rig: Rig, desc: PollDesc, half: Half) -> None:
        desc.set_deadline(SOON)
        rig.poller.wake_deadline()
        half.set_deadline(INF)
        assert rig.kicked() == []

    def test_removing_an_extended_deadline_kicks_away_the_wake_at_its_old_time(self, rig: Rig, half: Half) -> None:
        half.set_deadline(SOON)
        rig.poller.wake_deadline()
        half.set_deadline(LATER)
        half.set_deadline(INF)
        assert rig.kicked() == [INF]

    def test_each_kick_says_when_to_wake_from_now_on(self, rig: Rig, half: Half, other: Half) -> None:
        """After a kick the sleeper sleeps for the new time; the next kick is judged against that."""
        rig.poller.wake_deadline()
        half.set_deadline(LATER)
        other.set_deadline(SOON)
        half.set_deadline(SOON + 0.5)
        assert rig.kicked() == [LATER, SOON]
        other.set_deadline(INF)
        assert rig.kicked() == [SOON + 0.5]

    def test_where_time_passes_by_itself_nobody_is_kicked_for_a_removed_deadline(self) -> None:
        kicks: list[float] = []
        clock = Clock(perf_counter, 0.0)
        poller = Poller(FakePort(), clock, print, kicks.append)
        half = poller.open(FD).read
        half.set_deadline(clock.now() + 3600)
        armed = poller.wake_deadline()
        half.set_deadline(INF)
        assert kicks == []
        assert poller.sleeping_until == armed
        half.set_deadline(clock.now() + 7200)
        assert kicks == []
        half.set_deadline(clock.now() + 60)
        assert len(kicks) == 1
        half.set_deadline(INF)
        poller.poll(0.0)
        assert poller.wake_deadline() == INF

    def test_where_time_passes_by_itself_a_sleeper_that_wakes_too_early_may_stay_so(self) -> None:
        clock = Clock(perf_counter, 0.0)
        poller = Poller(FakePort(), clock, print)
        alarm = clock.now() + 60
        assert poller.wake_deadline(alarm) == alarm
        half = poller.open(FD).read
        half.set_deadline(alarm + 60)
        assert poller.wake_deadline(alarm) == alarm
        assert poller.sleeping_until == alarm

    def test_but_not_one_whose_alarm_is_over_or_too_late(self) -> None:
        clock = Clock(perf_counter, 0.0)
        poller = Poller(FakePort(), clock, print)
        half = poller.open(FD).read
        when = clock.now() + 60
        half.set_deadline(when)
        assert poller.wake_deadline(clock.now()) == when
        assert poller.wake_deadline(when + 1) == when
        assert poller.sleeping_until == when

    def test_where_time_is_virtual_the_sleeper_wakes_for_what_there_is(self, rig: Rig, half: Half) -> None:
        assert rig.poller.wake_deadline(SOON) == INF
        half.set_deadline(LATER)
        assert rig.poller.wake_deadline(SOON) == LATER
        assert rig.poller.sleeping_until == LATER

    def test_the_kick_is_optional(self) -> None:
        """A poller that sleeps only inside poll needs none."""
        poller = Poller(FakePort(), lambda: NOW, print)
        half = poller.open(FD).read
        poller.wake_deadline()
        half.set_deadline(SOON)
        half.set_deadline(INF)
        assert poller.wake_deadline() == INF


class TestEnd:
    """Shutdown with the run, disown in a forked child."""

    def test_shutdown_fails_everything_and_closes_the_port(self, rig: Rig) -> None:
        desc = rig.open_parked(FD)
        desc.set_deadline(SOON)
        rig.poller.shutdown()
        assert rig.woken() == ["reader", "writer"]
        assert (desc.read.check(), desc.write.check()) == (CLOSED, CLOSED)
        assert rig.port.closed
        assert rig.poller.statistics().descriptors == 0

    def test_shutdown_is_idempotent_and_descriptors_can_be_closed_afterwards(self, rig: Rig) -> None:
        desc = rig.open_parked(FD)
        rig.poller.shutdown()
        rig.woken()
        rig.poller.shutdown()
        rig.poller.close(desc)
        rig.poller.close(desc)
        assert rig.woken() == []

    @pytest.mark.parametrize("end", [Poller.shutdown, Poller.disown])
    def test_nothing_is_opened_afterwards(self, rig: Rig, end: Any) -> None:
        end(rig.poller)
        with pytest.raises(OSError, match="closed") as caught:
            rig.poller.open(FD)
        assert caught.value.errno == errno.EBADF
        assert rig.port.watched == set()

    def test_disown_closes_the_port_and_changes_nothing_in_it(self, rig: Rig) -> None:
        rig.open_parked(FD)
        rig.poller.disown()
        assert rig.port.closed
        assert rig.port.watched == {FD}
        assert rig.woken() == []
        rig.poller.disown()
        assert rig.poller.statistics().descriptors == 0

    def test_a_disowned_descriptor_can_be_closed_without_the_parents_waiters_and_registration(self, rig: Rig) -> None:
        desc = rig.open_parked(FD)
        rig.poller.disown()
        desc.read.set_deadline(PAST)
        rig.poller.close(desc)
        assert rig.woken() == []
        assert rig.port.watched == {FD}
        assert desc.read.check() == CLOSED

    @pytest.mark.parametrize("end", [Poller.shutdown, Poller.disown])
    def test_a_deadline_set_afterwards_kicks_nobody(self, rig: Rig, desc: PollDesc, half: Half, end: Any) -> None:
        half.set_deadline(LATER)
        rig.poller.wake_deadline()
        end(rig.poller)
        rig.kicked()
        half.set_deadline(SOON)
        half.set_deadline(INF)
        assert rig.kicked() == []

    def test_a_timer_set_afterwards_is_refused_and_one_that_was_set_can_be_stopped(self, rig: Rig) -> None:
        timer = Timer(lambda arg, seq, lateness: None)
        rig.poller.set_timer(timer, LATER)
        rig.poller.shutdown()
        for when in (PAST, SOON, LATER):
            with pytest.raises(RuntimeError, match="no timer"):
                rig.poller.set_timer(Timer(lambda arg, seq, lateness: None), when)
        assert rig.poller.set_timer(timer, INF)
        assert not rig.poller.set_timer(timer, INF)

    def test_a_timer_that_a_forked_child_sets_is_ignored(self, rig: Rig) -> None:
        rig.poller.wake_deadline()
        rig.poller.disown()
        rig.kicked()
        rig.poller.set_timer(Timer(lambda arg, seq, lateness: None), SOON)
        assert rig.kicked() == []

    def test_the_counts(self, rig: Rig) -> None:
        first, second = rig.open_parked(FD), rig.open_parked(FD + 1)
        second.write.unpark()
        first.set_deadline(SOON)
        second.read.set_deadline(LATER)
        second.read.set_deadline(INF)
        statistics = rig.poller.statistics()
        assert (statistics.port, statistics.descriptors, statistics.parked) == ("fake", 2, 3)
        assert (statistics.timers.stored, statistics.timers.zombies) == (3, 1)
        assert_sound(rig.poller, first, second)


class TestRealPort:
    """What a kernel must say for the poller to be right."""

    @pytest.fixture
    def poller(self) -> Iterator[Poller]:
        poller = Poller(open_port(), lambda: NOW, print)
        yield poller
        poller.shutdown()

    @pytest.mark.skipif(sys.platform != "linux", reason="kqueue polls regular files")
    def test_a_regular_file_has_no_deadlines(self, poller: Poller, tmp_path: Path) -> None:
        with (tmp_path / "file").open("w") as file:
            with pytest.raises(io.UnsupportedOperation, match="does not support deadlines"):
                poller.open(file.fileno())
            assert poller.statistics().descriptors == 0

    def test_a_descriptor_that_is_not_open_cannot_be_watched(self, poller: Poller) -> None:
        with socket_pair() as (left, _):
            fd = left.fileno()
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            poller.open(fd)
        assert caught.value.errno == errno.EBADF
        assert poller.statistics().descriptors == 0
