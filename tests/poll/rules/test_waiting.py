"""A waiter parks in a half, and is woken."""

from __future__ import annotations

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
    Half,
    PollDesc,
)
from tests.support.poll import FD, INF, PAST, SOON, Rig, move, park


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
