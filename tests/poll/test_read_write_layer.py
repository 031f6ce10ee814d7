"""Go's rules for the read and write layer (1.7), on a `Conn` over a socketpair, in virtual time.

Go queues concurrent readers behind a lock; a trio stream refuses the second one instead. A read of no bytes is an error
in trio, where Go returns at once. Everything else holds as it is.
"""

from __future__ import annotations

import math
import socket
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import Conn, DeadlineExceeded

CHUNK = 1 << 20  # bytes; more than the buffers of a socketpair hold


class Pair:
    """A `Conn` and the plain socket at its other end."""

    def __init__(self) -> None:
        ours, self.peer = socket.socketpair()
        self.peer.setblocking(False)
        self.conn = Conn.from_socket(ours)

    def drain(self) -> int:
        """Take everything that has arrived at the peer; how many bytes."""
        taken = 0
        try:
            while data := self.peer.recv(65536):
                taken += len(data)
        except BlockingIOError:
            return taken
        return taken

    def fill(self) -> int:
        """Send until the kernel takes no more."""
        sent = 0
        while taken := self.conn.try_send(bytes(65536)):
            sent += taken
        return sent


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = Pair()
    with pair.peer:
        yield pair
        await pair.conn.aclose()


def in_(seconds: float) -> float:
    return trio.current_time() + seconds


async def test_1_7_1_a_second_reader_is_refused_whatever_the_deadline(pair: Pair, autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_read_timeout, pair.conn, in_(5))
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await pair.conn.receive_some()
        await trio.sleep(3)
        with pytest.raises(trio.BusyResourceError):
            await pair.conn.receive_some()
    # the holder has timed out, and its successor fails at once
    start = trio.current_time()
    with pytest.raises(DeadlineExceeded):
        await pair.conn.receive_some()
    assert trio.current_time() == start


async def test_1_7_1_a_second_writer_is_refused(pair: Pair, nursery: trio.Nursery) -> None:
    nursery.start_soon(pair.conn.send_all, bytes(CHUNK))
    await wait_all_tasks_blocked()
    with pytest.raises(trio.BusyResourceError):
        await pair.conn.send_all(b"")
    nursery.cancel_scope.cancel()


async def test_1_7_1_reader_and_writer_do_not_exclude_each_other(pair: Pair, autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_read_timeout, pair.conn, in_(5))
        await wait_all_tasks_blocked()
        await pair.conn.send_all(b"meanwhile")
    assert pair.peer.recv(100) == b"meanwhile"


async def test_1_7_1_close_wakes_both_with_the_error_of_a_closed_connection(pair: Pair) -> None:
    closed: list[str] = []

    async def read() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await pair.conn.receive_some()
        closed.append("read")

    async def write() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await pair.conn.send_all(bytes(CHUNK))
        closed.append("write")

    pair.conn.set_deadline(in_(3600))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(write)
        await wait_all_tasks_blocked()
        await pair.conn.aclose()
    assert sorted(closed) == ["read", "write"]


async def test_1_7_2_a_read_of_no_bytes_is_refused_before_the_deadline_is_looked_at(pair: Pair) -> None:
    """Go returns no bytes; trio's contract is a ValueError. Neither waits, and neither is a timeout."""
    pair.conn.set_read_deadline(-math.inf)
    with pytest.raises(ValueError, match="max_bytes"):
        await pair.conn.receive_some(0)
    with pytest.raises(DeadlineExceeded):
        await pair.conn.receive_some(1)


async def test_1_7_3_an_expired_read_fails_though_bytes_are_waiting_and_loses_none(pair: Pair) -> None:
    pair.peer.send(b"waiting")
    pair.conn.set_read_deadline(-math.inf)
    for _ in range(2):
        with pytest.raises(DeadlineExceeded):
            await pair.conn.receive_some()
    pair.conn.set_read_deadline(math.inf)
    assert await pair.conn.receive_some() == b"waiting"


async def test_1_7_3_a_read_is_tried_before_it_waits(pair: Pair, autojump_clock: MockClock) -> None:
    pair.peer.send(b"x")
    await trio.sleep(1)
    pair.conn.set_read_deadline(in_(5))
    start = trio.current_time()
    assert await pair.conn.receive_some() == b"x"
    assert trio.current_time() == start


async def test_1_7_3_a_spurious_wake_makes_the_read_wait_again(pair: Pair, autojump_clock: MockClock) -> None:
    pair.conn.set_read_deadline(in_(5))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_read_timeout, pair.conn, in_(5))
        await wait_all_tasks_blocked()
        pair.conn._desc.read.unblock(True)


async def test_1_7_4_a_write_loops_until_all_is_written(pair: Pair, autojump_clock: MockClock) -> None:
    arrived = 0

    async def take() -> None:
        nonlocal arrived
        while arrived < CHUNK:
            arrived += pair.drain()
            await trio.sleep(1)

    pair.conn.set_write_deadline(in_(3600))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await pair.conn.send_all(bytes(CHUNK))
    assert arrived == CHUNK


async def test_1_7_4_a_write_that_times_out_says_how_much_was_sent(pair: Pair, autojump_clock: MockClock) -> None:
    start = trio.current_time()
    pair.conn.set_write_deadline(start + 5)
    with pytest.raises(DeadlineExceeded) as caught:
        await pair.conn.send_all(bytes(CHUNK))
    assert trio.current_time() == start + 5
    assert 0 < caught.value.sent < CHUNK
    assert pair.drain() == caught.value.sent
    # the connection is whole
    pair.conn.set_write_deadline(math.inf)
    await pair.conn.send_all(b"on we go")
    assert pair.peer.recv(100) == b"on we go"


async def test_1_7_4_a_write_looks_at_its_deadline_first(pair: Pair) -> None:
    """Also where the kernel has room for all of it, and also for no bytes at all."""
    pair.conn.set_write_deadline(-math.inf)
    for data in (b"some", b""):
        with pytest.raises(DeadlineExceeded) as caught:
            await pair.conn.send_all(data)
        assert caught.value.sent == 0
    assert pair.drain() == 0


async def test_1_7_4_a_write_of_no_bytes_succeeds_within_its_deadline(pair: Pair, autojump_clock: MockClock) -> None:
    pair.fill()
    pair.conn.set_write_deadline(in_(5))
    start = trio.current_time()
    await pair.conn.send_all(b"")
    assert trio.current_time() == start


async def test_1_7_4_while_it_writes_the_deadline_can_be_moved(pair: Pair, autojump_clock: MockClock) -> None:
    start = trio.current_time()
    pair.conn.set_write_deadline(start + 5)

    async def move() -> None:
        await trio.sleep(4)
        pair.conn.set_write_deadline(start + 60)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(move)
        with pytest.raises(DeadlineExceeded) as caught:
            await pair.conn.send_all(bytes(CHUNK))
    assert trio.current_time() == start + 60
    assert caught.value.deadline == start + 60


@pytest.mark.parametrize("op", ["read", "write"])
async def test_1_7_5_the_error_is_a_timeout_and_says_of_what(pair: Pair, op: str, autojump_clock: MockClock) -> None:
    deadline = in_(5)
    pair.conn.set_deadline(deadline)
    with pytest.raises(TimeoutError) as caught:
        await (pair.conn.receive_some() if op == "read" else pair.conn.send_all(bytes(CHUNK)))
    error = caught.value
    assert isinstance(error, DeadlineExceeded)
    assert (error.op, error.deadline, error.errno) == (op, deadline, None)
    assert str(error).startswith(f"{op} deadline exceeded")


async def test_1_7_6_a_deadline_is_absolute_and_holds_for_many_reads(pair: Pair, autojump_clock: MockClock) -> None:
    """Bytes that trickle extend nothing."""
    deadline = in_(5)
    pair.conn.set_read_deadline(deadline)

    async def trickle() -> None:
        for _ in range(10):
            await trio.sleep(1)
            pair.peer.send(b".")

    reads = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trickle)
        with pytest.raises(DeadlineExceeded):
            while True:
                await pair.conn.receive_some()
                reads += 1
        assert trio.current_time() == deadline
        nursery.cancel_scope.cancel()
    assert reads in (4, 5)  # the fifth byte and the deadline come together


async def test_1_7_6_a_deadline_applies_to_the_pending_operation(pair: Pair, autojump_clock: MockClock) -> None:
    deadline = in_(10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_read_timeout, pair.conn, deadline)
        await wait_all_tasks_blocked()
        pair.conn.set_read_deadline(deadline)


async def test_1_7_6_a_past_deadline_ends_the_pending_operation_at_once(pair: Pair, autojump_clock: MockClock) -> None:
    """How one cancels a read: Go's net/http depends on it."""
    start = trio.current_time()
    pair.conn.set_read_deadline(start + 3600)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_read_timeout, pair.conn, start)
        await wait_all_tasks_blocked()
        pair.conn.set_read_deadline(start - 1)


async def test_1_7_6_an_exceeded_deadline_can_be_refreshed(pair: Pair, autojump_clock: MockClock) -> None:
    pair.conn.set_read_deadline(in_(1))
    with pytest.raises(DeadlineExceeded):
        await pair.conn.receive_some()
    pair.conn.set_read_deadline(in_(1))
    pair.peer.send(b"late")
    assert await pair.conn.receive_some() == b"late"


async def test_1_7_6_no_deadline_waits_for_ever(pair: Pair, autojump_clock: MockClock) -> None:
    pair.conn.set_read_deadline(in_(5))
    pair.conn.set_read_deadline(math.inf)
    with trio.move_on_after(86400) as scope:
        await pair.conn.receive_some()
    assert scope.cancelled_caught


async def test_1_7_6_an_idle_timeout_is_a_deadline_moved_after_each_read(pair: Pair, autojump_clock: MockClock) -> None:
    async def chat() -> None:
        for _ in range(10):
            await trio.sleep(4)
            pair.peer.send(b".")

    start = trio.current_time()
    pair.conn.set_read_deadline(start + 5)
    reads = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(chat)
        with pytest.raises(DeadlineExceeded):
            while True:
                await pair.conn.receive_some()
                reads += 1
                pair.conn.set_read_deadline(in_(5))
    assert reads == 10
    assert trio.current_time() == start + 45


async def expect_read_timeout(conn: Conn, when: float) -> None:
    """Read until the read deadline ends it, at `when` on the clock."""
    if conn.read_deadline == math.inf and when > trio.current_time():
        conn.set_read_deadline(when)
    with pytest.raises(DeadlineExceeded):
        await conn.receive_some()
    assert trio.current_time() == when
