"""Connections' deadlines on every timer queue, chosen as an operator does: by DEADLINED_QUEUE. Time is virtual."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import Conn, statistics
from deadlined.runtime import current_host
from deadlined.timers import SCHEMES, Timers
from tests.support.net import HOUR, INF, Attempt, after, fails_at_its_deadline, past, unix_pair


@pytest.fixture(params=sorted(SCHEMES))
def timers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Timers:
    """A facility with the queue that this test's run uses, for its granularity."""
    monkeypatch.setenv("DEADLINED_QUEUE", request.param)
    return Timers(request.param)


def in_time(timers: Timers, began: float, when: float) -> bool:
    """Whether it is now the time for a deadline `when` that was set when it `began`: not early, not too late."""
    late = trio.current_time() - when
    return 0.0 <= late <= timers.granularity + timers.coarseness * (when - began) + math.ulp(when)


async def poke(conn: Conn, peer: Conn) -> None:
    """A byte from one end to the other: the pump polls, and a queue learns what time it is."""
    await peer.send_all(b".")
    assert await conn.receive_some() == b"."


async def test_the_run_uses_the_queue_that_the_environment_names(timers: Timers) -> None:
    async with unix_pair():
        found = statistics()
        assert found is not None
        assert found.poller.timers.queue == timers.name


@pytest.mark.parametrize("delay", [1e-9, 0.001, 0.3, 10.0, 75.0, 3 * HOUR, 1e9])
async def test_a_deadline_ends_a_read_in_time(timers: Timers, autojump_clock: MockClock, delay: float) -> None:
    async with unix_pair() as (conn, _):
        began = trio.current_time()
        conn.set_read_deadline(began + delay)
        error = await fails_at_its_deadline(lambda: conn.receive_some(1))
        assert error.deadline == began + delay
        assert in_time(timers, began, began + delay)


async def test_deadlines_that_traffic_has_placed_end_in_time(timers: Timers, autojump_clock: MockClock) -> None:
    """With polls between the setting and the end, as in a busy server."""
    async with unix_pair() as (conn, peer), unix_pair() as (one, other), trio.open_nursery() as nursery:
        began = trio.current_time()
        attempts = {}
        for ends, delay in ((conn, 7.0), (peer, 30.0), (one, 75.0), (other, 600.0)):
            ends.set_read_deadline(began + delay)
            attempts[delay] = Attempt(nursery, lambda ends=ends: ends.receive_some(1))  # type: ignore[misc]
        async with unix_pair() as (busy, idle):
            for _ in range(3):
                await poke(busy, idle)
                await trio.sleep(0.001)
        for delay, attempt in attempts.items():
            await attempt.done()
            assert isinstance(attempt.error, TimeoutError)
            assert in_time(timers, began, began + delay)


async def test_an_extended_deadline_ends_at_its_new_time(timers: Timers, autojump_clock: MockClock) -> None:
    async with unix_pair() as (conn, peer):
        for _ in range(20):
            began = trio.current_time()
            conn.set_deadline(began + 5.0)
            await poke(conn, peer)
            await trio.sleep(1.0)
        began = trio.current_time()
        conn.set_deadline(began + 5.0)
        await fails_at_its_deadline(lambda: conn.receive_some(1))
        assert in_time(timers, began, began + 5.0)


async def test_a_deadline_moved_earlier_wakes_the_sleeper(timers: Timers, autojump_clock: MockClock) -> None:
    async with unix_pair() as (conn, peer), trio.open_nursery() as nursery:
        conn.set_read_deadline(after(HOUR))
        await poke(conn, peer)
        attempt = Attempt(nursery, lambda: conn.receive_some(1))
        await trio.sleep(3.0)
        assert attempt.pending
        began = trio.current_time()
        conn.set_read_deadline(began + 2.0)
        await attempt.done()
        assert in_time(timers, began, began + 2.0)


@pytest.mark.parametrize("pokes", [False, True], ids=["unplaced", "placed"])
async def test_a_cleared_deadline_leaves_nothing_to_wait_for(
    timers: Timers, mock_clock: MockClock, pokes: bool
) -> None:
    async with unix_pair() as (conn, peer):
        conn.set_read_deadline(after(7.0))
        if pokes:
            await poke(conn, peer)
        await wait_all_tasks_blocked()
        assert 0.0 < trio.lowlevel.current_statistics().seconds_to_next_deadline < 8.0
        conn.set_read_deadline(INF)
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == INF


@pytest.mark.parametrize("when", [-INF, -1e300, -1.0])
async def test_a_past_deadline_fails_at_once(timers: Timers, mock_clock: MockClock, when: float) -> None:
    async with unix_pair() as (conn, peer):
        conn.set_read_deadline(when)
        await fails_at_its_deadline(lambda: conn.receive_some(1))
        conn.set_read_deadline(past())
        await fails_at_its_deadline(lambda: conn.receive_some(1))
        conn.set_read_deadline(after(1e300))
        await poke(conn, peer)


async def test_a_queue_that_does_not_exist_is_named_with_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEADLINED_QUEUE", "wheal")
    with pytest.raises(
        ValueError, match=r"DEADLINED_QUEUE: unknown timer queue 'wheal': choose one of hashed, .*wheel"
    ):
        current_host()


async def test_an_empty_variable_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEADLINED_QUEUE", "")
    found = current_host().statistics()
    assert found.poller.timers.queue == "heap4"
