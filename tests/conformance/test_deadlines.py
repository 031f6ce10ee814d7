"""Go's rules of a deadline, on every event loop: sticky, precedence, generations, each direction for itself."""

from __future__ import annotations

import math
import time

import pytest

from deadlined import ClosedResourceError, Conn, DeadlineExceeded, current_time, statistics
from tests.support.conformance import Loop, in_virtual_time, on_each_loop, on_loops
from tests.support.net import PairMaker, clog, over_tcp_and_unix, tcp_pair, unix_pair

INF = math.inf


async def read_forever(conn: Conn) -> None:
    while True:
        await conn.receive_some(1)


@on_each_loop
@over_tcp_and_unix
async def test_a_past_deadline_fails_though_bytes_wait_until_it_is_moved(loop: Loop, pair: PairMaker) -> None:
    async with pair() as (conn, peer):
        await peer.send_all(b"bytes")
        conn.set_read_deadline(loop.after(-5))
        for _ in range(3):
            with pytest.raises(DeadlineExceeded):
                await conn.receive_some()
        conn.set_read_deadline(INF)
        assert await conn.receive_some() == b"bytes"


@on_each_loop
@over_tcp_and_unix
async def test_a_read_ends_at_its_deadline_and_so_does_the_next(loop: Loop, pair: PairMaker) -> None:
    async with pair() as (conn, peer):
        when = loop.after(5)
        conn.set_read_deadline(when)
        with pytest.raises(DeadlineExceeded) as caught:
            await conn.receive_some()
        assert loop.is_at(when)
        assert caught.value.op == "read"
        assert caught.value.deadline == when
        await peer.send_all(b"late")
        with pytest.raises(DeadlineExceeded):
            await conn.receive_some()
        conn.set_read_deadline(loop.after(3600))
        assert await conn.receive_some() == b"late"


@on_loops("uvloop")
async def test_a_timeout_of_nothing_expires_at_once_though_an_earlier_one_was_not_noticed(loop: Loop) -> None:
    async with tcp_pair() as (conn, peer):
        await peer.send_all(b"bytes")
        conn.set_read_timeout(0.001)
        # the loop is busy meanwhile
        time.sleep(0.01)  # noqa: ASYNC251
        conn.set_read_timeout(0)
        with pytest.raises(DeadlineExceeded):
            conn.try_receive()


@on_each_loop
async def test_a_write_ends_at_its_deadline_and_says_what_was_sent(loop: Loop) -> None:
    async with unix_pair() as (conn, peer):
        when = loop.after(5)
        conn.set_write_deadline(when)
        with pytest.raises(DeadlineExceeded) as caught:
            await conn.send_all(bytes(2**22))
        assert loop.is_at(when)
        assert caught.value.op == "write"
        received = 0
        conn.close()
        while data := await peer.receive_some():
            received += len(data)
        assert 0 < caught.value.sent == received


@on_each_loop
async def test_a_past_write_deadline_sends_nothing_though_there_is_room(loop: Loop) -> None:
    async with unix_pair() as (conn, peer):
        conn.set_write_deadline(loop.after(-5))
        for _ in range(2):
            with pytest.raises(DeadlineExceeded) as caught:
                await conn.send_all(b"nothing")
            assert caught.value.sent == 0
        conn.set_write_deadline(INF)
        await conn.send_all(b"something")
        assert await peer.receive_some() == b"something"


@on_each_loop
async def test_another_task_cancels_a_pending_read_by_a_past_deadline(loop: Loop) -> None:
    async with unix_pair() as (conn, _), loop.tasks() as tasks:
        reading = tasks.start(conn.receive_some)
        await loop.settle()
        assert reading.pending
        before = current_time()
        conn.set_read_deadline(-INF)
        await reading.fails_with(DeadlineExceeded)
        assert loop.is_at(before)


@in_virtual_time
async def test_a_deadline_that_is_moved_away_does_not_end_the_read(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        conn.set_read_deadline(loop.after(5))
        reading = tasks.start(conn.receive_some)
        await loop.sleep(4)
        later = loop.after(60)
        conn.set_read_deadline(later)
        await loop.sleep(4)
        assert reading.pending
        await peer.send_all(b"still here")
        assert await reading.succeeds() == b"still here"


@on_each_loop
async def test_an_earlier_deadline_wins_over_the_one_before(loop: Loop) -> None:
    async with unix_pair() as (conn, _), loop.tasks() as tasks:
        conn.set_read_deadline(loop.after(3600))
        reading = tasks.start(conn.receive_some)
        await loop.settle()
        when = loop.after(3)
        conn.set_read_deadline(when)
        await reading.fails_with(DeadlineExceeded)
        assert loop.is_at(when)


@on_each_loop
async def test_a_deadline_that_fires_and_is_cleared_before_the_task_runs_did_not_happen(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        reading = tasks.start(conn.receive_some)
        await loop.settle()
        conn.set_read_deadline(-INF)
        # the reader is woken and has not run yet
        conn.set_read_deadline(INF)
        await loop.settle()
        assert reading.pending
        await peer.send_all(b"data")
        assert await reading.succeeds() == b"data"


@on_each_loop
async def test_readiness_beats_expiry_after_a_wake(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        reading = tasks.start(conn.receive_some)
        await loop.settle()
        conn.set_read_deadline(-INF)
        # both before the reader runs
        conn._desc.read.unblock(True)
        assert peer.try_send(b"in time") == 7
        assert await reading.succeeds() == b"in time"
        with pytest.raises(DeadlineExceeded):
            await conn.receive_some()


@on_each_loop
@pytest.mark.parametrize("first", ["closed", "expired"])
async def test_closed_beats_expired_beats_ready(loop: Loop, first: str) -> None:
    async with unix_pair() as (conn, peer):
        await peer.send_all(b"ready")
        await loop.settle()
        conn.set_deadline(-INF)
        if first == "closed":
            conn.close()
        with pytest.raises(ClosedResourceError if first == "closed" else DeadlineExceeded):
            await conn.receive_some()
        with pytest.raises(ClosedResourceError if first == "closed" else DeadlineExceeded):
            await conn.send_all(b"x")


@on_each_loop
async def test_a_close_beats_an_expiry_that_has_woken_the_task(loop: Loop) -> None:
    async with unix_pair() as (conn, _), loop.tasks() as tasks:
        reading = tasks.start(conn.receive_some)
        await loop.settle()
        conn.set_read_deadline(-INF)
        conn.close()
        await reading.fails_with(ClosedResourceError)


@on_each_loop
async def test_the_two_directions_have_deadlines_of_their_own(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        await clog_on(loop, conn)
        reading, writing = tasks.start(conn.receive_some), tasks.start(conn.send_all, bytes(65536))
        await loop.settle()
        first, second = loop.after(2), loop.after(4)
        conn.set_read_deadline(first)
        conn.set_write_deadline(second)
        await reading.fails_with(DeadlineExceeded)
        assert loop.is_at(first)
        assert writing.pending or not loop.is_virtual
        await writing.fails_with(DeadlineExceeded)
        assert loop.is_at(second)
        conn.set_read_deadline(INF)
        await peer.send_all(b"the other way")
        assert await conn.receive_some() == b"the other way"


@on_each_loop
async def test_an_expired_write_deadline_leaves_reads_alone(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        conn.set_deadline(-INF)
        conn.set_write_deadline(-INF)
        conn.set_read_deadline(INF)
        reading = tasks.start(conn.receive_some)
        await loop.sleep(5)
        assert reading.pending
        await peer.send_all(b"read")
        assert await reading.succeeds() == b"read"


@on_each_loop
async def test_an_idle_timeout_is_a_deadline_that_each_read_moves(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:

        async def read_until_idle() -> float:
            while True:
                conn.set_read_timeout(loop.seconds(5))
                last = current_time()
                try:
                    await conn.receive_some()
                except DeadlineExceeded:
                    return last

        reading = tasks.start(read_until_idle)
        for _ in range(10):
            await loop.sleep(3)
            if not loop.is_virtual and not reading.pending:
                # the machine was stopped for longer than the timeout
                return
            await peer.send_all(b"x")
        last = await reading.succeeds()
        assert loop.is_at(last + loop.seconds(5))
        if loop.is_virtual:
            counts = statistics()
            assert counts is not None
            assert counts.poller.expired == 1


@on_each_loop
async def test_many_deadlines_end_their_reads_in_order_each_at_its_time(loop: Loop) -> None:
    order: list[int] = []
    ends: list[tuple[float, float]] = []

    async def read_until(number: int) -> None:
        async with unix_pair() as (conn, _):
            when = start + loop.seconds(number)
            conn.set_read_deadline(when)
            with pytest.raises(DeadlineExceeded):
                await conn.receive_some()
            ends.append((when, current_time()))
            order.append(number)

    start = current_time()
    async with loop.tasks() as tasks:
        for running in [tasks.start(read_until, number) for number in (9, 3, 7, 1, 8, 2, 6, 4, 5)]:
            await running.succeeds()
    # in real time all of them may have passed before they are set
    assert order == sorted(order) or not loop.is_virtual
    assert all(end == when if loop.is_virtual else end >= when for when, end in ends)


@on_each_loop
@pytest.mark.parametrize("method", ["set_read_deadline", "set_write_deadline", "set_deadline", "set_read_timeout"])
async def test_nan_is_refused_and_changes_nothing(loop: Loop, method: str) -> None:
    async with unix_pair() as (conn, peer):
        with pytest.raises(ValueError, match="NaN"):
            getattr(conn, method)(math.nan)
        await peer.send_all(b"usable")
        assert await conn.receive_some() == b"usable"


@on_each_loop
async def test_a_deadline_beyond_all_time_is_none(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        conn.set_read_deadline(1e300)
        conn.set_write_deadline(1e307)
        reading = tasks.start(conn.receive_some)
        await loop.settle()
        assert reading.pending
        await peer.send_all(b"x")
        assert await reading.succeeds() == b"x"


async def clog_on(loop: Loop, conn: Conn) -> None:
    """Fill the kernel's buffers for bytes from `conn` to its peer."""
    if loop.is_trio:
        await clog(conn)
        return
    while conn.try_send(bytes(65536)) or conn.try_send(b"\0"):
        await loop.step()
