"""The rules of a bucket in virtual time: claimed or stopped, never both; order, periods, inheritance."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from collections.abc import Callable

import pytest

from deadlined.threads import TimerHandle
from deadlined.threads.bucket import Bucket
from deadlined.threads.handle import Ticket, home, take_item
from tests.support.threads import Plan

INF = math.inf


def test_nothing_is_due_before_its_time() -> None:
    plan = Plan()
    plan.armed("a", 5.0)
    assert plan.called_at(math.nextafter(5.0, 0.0)) == []
    assert plan.bucket.wake_time() == 5.0
    assert plan.called_at(5.0) == ["a"]
    assert plan.bucket.wake_time() == INF


def test_calls_are_made_in_the_order_of_their_times_and_equal_times_in_the_order_of_arming() -> None:
    plan = Plan()
    for name, when in [("c", 3.0), ("a", 1.0), ("b", 2.0), ("a2", 1.0), ("c2", 3.0)]:
        plan.armed(name, when)
    assert plan.called_at(9.0) == ["a", "a2", "b", "c", "c2"]


def test_a_stop_between_collecting_and_claiming_prevents_the_call() -> None:
    plan = Plan()
    plan.armed("a", 1.0)
    second = plan.armed("b", 1.0)
    plan.armed("c", 1.0)
    assert plan.call_next(2.0)
    assert second.stop() is True
    assert second.stop() is False
    assert plan.called_at(2.0) == ["c"]


def test_a_stop_after_claiming_is_too_late() -> None:
    plan = Plan()
    handle = plan.armed("a", 1.0)
    assert plan.bucket.claim_due(1.0) is handle
    assert handle.stop() is False
    assert not handle.pending


def test_a_reset_between_collecting_and_claiming_moves_the_call() -> None:
    plan = Plan()
    plan.armed("a", 1.0)
    second = plan.armed("b", 1.0)
    assert plan.call_next(2.0)
    assert plan.bucket.arm(second, 3.0) is True
    assert plan.called_at(2.0) == []
    assert plan.called_at(3.0) == ["b"]


def test_stopped_and_armed_again_between_collecting_and_claiming_is_called_once() -> None:
    plan = Plan()
    plan.armed("a", 1.0)
    second = plan.armed("b", 1.0)
    assert plan.call_next(2.0)
    assert second.stop()
    assert plan.bucket.arm(second, 2.0) is False
    assert plan.called_at(2.0) == ["b"]


def test_a_timer_that_was_called_can_be_armed_again() -> None:
    plan = Plan()
    handle = plan.armed("a", 1.0)
    assert plan.called_at(1.0) == ["a"]
    assert plan.bucket.arm(handle, 2.0) is False
    assert handle.pending
    assert plan.called_at(2.0) == ["a"]


def test_what_is_armed_during_the_calls_of_one_time_comes_after_them() -> None:
    plan = Plan()
    plan.armed("a", 1.0)
    plan.armed("b", 1.0)
    assert plan.call_next(1.0)
    plan.armed("early", 0.0)
    assert plan.bucket.wake_time() <= 1.0
    assert plan.called_at(1.0) == ["b", "early"]


def test_inf_is_pending_and_never_due() -> None:
    plan = Plan()
    handle = plan.armed("never", INF)
    assert handle.pending
    assert plan.bucket.wake_time() == INF
    assert plan.called_at(1e308) == []
    assert handle.stop() is True
    assert handle.stop() is False


def test_moved_to_inf_and_back() -> None:
    plan = Plan()
    handle = plan.armed("a", 1.0)
    assert plan.bucket.arm(handle, INF) is True
    assert plan.called_at(5.0) == []
    assert plan.bucket.arm(handle, 6.0) is True
    assert plan.called_at(6.0) == ["a"]


def test_a_periodic_timer_skips_what_it_missed_and_keeps_its_phase() -> None:
    plan = Plan()
    plan.armed("tick", 10.0, 10.0)
    assert plan.called_at(10.0) == ["tick"]
    assert plan.called_at(47.0) == ["tick"]
    assert plan.called_at(49.0) == []
    assert plan.called_at(50.0) == ["tick"]


def test_a_periodic_call_that_waited_for_others_beyond_its_next_tick_skips_that_tick() -> None:
    plan = Plan()
    plan.armed("slow", 10.0)
    plan.armed("tick", 10.0, 10.0)
    assert plan.call_next(10.0)
    assert plan.called_at(35.0) == ["tick"]
    assert plan.called_at(39.0) == []
    assert plan.called_at(40.0) == ["tick"]


def test_a_periodic_timer_is_pending_until_it_is_stopped() -> None:
    plan = Plan()
    handle = plan.armed("tick", 10.0, 10.0)
    assert plan.bucket.claim_due(10.0) is handle
    assert handle.pending
    assert handle.stop() is True
    assert plan.called_at(99.0) == []


def test_a_periodic_timer_stopped_between_collecting_and_claiming_is_not_called() -> None:
    plan = Plan()
    plan.armed("a", 10.0)
    tick = plan.armed("tick", 10.0, 10.0)
    assert plan.call_next(10.0)
    assert tick.stop() is True
    assert plan.called_at(99.0) == []


def test_lateness_is_that_of_the_call_and_not_of_the_collection() -> None:
    plan = Plan()
    plan.armed("a", 1.0)
    plan.armed("b", 1.0)
    assert plan.call_next(1.5)
    assert plan.bucket.statistics().worst_lateness == 0.5
    assert plan.call_next(4.0)
    assert plan.bucket.statistics().worst_lateness == 3.0


def test_statistics_count_what_is_stored_and_what_waits_to_be_claimed() -> None:
    plan = Plan()
    for name in "abc":
        plan.armed(name, 1.0)
    plan.armed("later", 8.0)
    plan.armed("stopped", 9.0).stop()
    assert plan.call_next(1.0)
    statistics = plan.bucket.statistics()
    assert (statistics.stored, statistics.zombies, statistics.fired) == (4, 1, 1)


def test_a_periodic_timer_that_waits_to_be_claimed_is_counted_once() -> None:
    plan = Plan()
    for name in "abc":
        plan.armed(name, 1.0, 10.0)
    assert plan.call_next(1.0)
    assert plan.bucket.statistics().stored == 3


def test_a_stopped_timer_keeps_nothing_of_the_users_alive() -> None:
    plan = Plan()
    plan.armed("first", 1.0)
    argument = {1}
    held = weakref.ref(argument)
    for when in (1.0, 9.0):
        handle = plan.handle("x")
        handle._args = (argument,)
        plan.bucket.arm(handle, when)
        if when == 1.0:
            assert plan.call_next(1.0)
        handle.stop()
    gc.disable()
    try:
        del argument, handle
        assert held() is None
    finally:
        gc.enable()


def test_a_stop_that_meets_a_close_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan()
    handle = plan.armed("a", 5.0)

    def take_slowly(ticket: Ticket) -> bool:
        # another thread does this now
        plan.bucket.close()
        return take_item(ticket)

    monkeypatch.setattr("deadlined.threads.handle.take_item", take_slowly)
    assert handle.stop() is True
    assert handle.stop() is False
    assert plan.bucket.statistics().stored == 0


# inheritance


@pytest.mark.parametrize("period", [0.0, 10.0])
def test_a_stop_of_which_the_heir_was_not_told_is_found_when_the_time_comes(period: float) -> None:
    plan = Plan()
    handle = plan.armed("a", 10.0, period)
    assert take_item(handle._ticket)
    assert plan.called_at(10.0) == []
    # removes what is stopped, as the thread does
    plan.armed("b", 99.0).stop()
    statistics = plan.bucket.statistics()
    assert statistics.stored == statistics.zombies
    assert plan.bucket.wake_time() == INF
    assert plan.bucket.arm(handle, 30.0) is False
    assert plan.called_at(30.0) == ["a"]


def test_an_heir_calls_what_was_pending_and_what_was_collected_and_the_handles_follow() -> None:
    old, new = Plan(), Plan()
    old.armed("a", 1.0)
    collected = old.armed("b", 1.0)
    moved = old.armed("c", 5.0)
    dropped = old.armed("d", 5.0)
    never = old.armed("never", INF)
    idle = old.handle("idle")
    assert old.call_next(1.0)
    new.bucket.take(old.bucket)
    assert (old.bucket.closed, new.bucket.closed) == (True, False)
    assert [handle.pending for handle in (collected, moved, dropped, never, idle)] == [True] * 4 + [False]
    assert dropped.stop() is True
    assert never.stop() is True
    assert new.bucket.wake_time() <= 1.0
    assert new.call_next(1.0)
    assert moved.pending
    while new.call_next(5.0):
        pass
    assert old.calls == ["a", "b", "c"]
    assert collected.stop() is False


@pytest.mark.parametrize("ask", [TimerHandle.stop, lambda handle: handle.pending], ids=["stop", "pending"])
def test_a_handle_that_is_asked_while_its_timers_are_taken_follows_them(
    ask: Callable[[TimerHandle], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Plan(), Plan()
    asked = old.armed("a", 5.0)

    def slow_home(handle: TimerHandle) -> Bucket:
        found = home(handle)
        if found is old.bucket:
            # another thread does this now
            new.bucket.take(old.bucket)
        return found

    monkeypatch.setattr("deadlined.threads.handle.home", slow_home)
    assert ask(asked) is True


def test_handles_follow_through_several_heirs() -> None:
    plans = [Plan() for _ in range(50)]
    stopped, called = plans[0].armed("stopped", 5.0), plans[0].armed("called", 5.0)
    for old, new in itertools.pairwise(plans):
        new.bucket.take(old.bucket)
    assert stopped.stop() is True
    assert plans[-1].bucket.claim_due(5.0) is called
    assert plans[-1].bucket.claim_due(5.0) is None


@pytest.mark.parametrize("when", [-INF, -1e308, 0.0, 1e308])
def test_extreme_times_do_not_disturb_the_others(when: float) -> None:
    plan = Plan()
    extreme = plan.armed("extreme", when)
    plan.armed("a", 1.0)
    assert plan.called_at(2.0) == (["extreme", "a"] if when <= 2.0 else ["a"])
    assert extreme.pending == (when > 2.0)
