"""Closing a descriptor, and using its number again."""

from __future__ import annotations

import errno
from operator import attrgetter

import pytest

from deadlined.poll import (
    CLOSED,
    ERROR,
    OK,
    PARKED,
    READ,
    WRITE,
    FakePort,
    Half,
    PollDesc,
    Poller,
)
from tests.support.poll import FD, INF, LATER, NOW, PAST, SOON, Rig, move, park


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
