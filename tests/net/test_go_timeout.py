"""Go's net/timeout_test.go on a trio stream. Each test names the Go test that it restates.

What Go measures with a margin is exact here: under a virtual clock a deadline is met to the last bit. Only the tests on
precision use the real clock, of which nothing is asserted but that no deadline came early.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from deadlined import Conn, DeadlineExceeded, open_tcp_stream, open_udp
from deadlined.runtime import current_host
from tests.support.net import (
    HOUR,
    INF,
    LOCALHOST,
    Attempt,
    PairMaker,
    after,
    assert_heap_is_sound,
    clog,
    fails_at_its_deadline,
    full_listener,
    local_listener,
    over_tcp_and_unix,
    past,
    receive_exactly,
    tcp_pair,
    unix_pair,
)

NANOSECOND = 1e-9
MICROSECOND = 1e-6
MILLISECOND = 1e-3

READ_TEXT = b"READ TIMEOUT TEST"
WRITE_TEXT = b"WRITE TIMEOUT TEST"

# Go's list, in seconds
VARIOUS = [
    *(n * NANOSECOND for n in (1, 2, 5, 50, 100, 200, 500, 750)),
    *(n * MICROSECOND for n in (1, 5, 25, 250, 500)),
    *(n * MILLISECOND for n in (1, 5, 100, 250, 500)),
    1.0,
]


def a_third_of(milliseconds: int) -> float:
    """As Go's integer nanoseconds divide: three of them are just less than the whole."""
    return milliseconds * 1_000_000 // 3 * NANOSECOND


# dialing and accepting


@pytest.mark.parametrize(
    ("seconds", "deadline"),
    [(-5.0, INF), (INF, -5.0), (-5.0, 5.0), (-sys.float_info.max, INF), (INF, -INF), (0.001, INF), (0.001, 5.0)],
)
async def test_dial_timeout(autojump_clock: MockClock, seconds: float, deadline: float) -> None:
    """TestDialTimeout: the earlier of a timeout and a deadline, neither before it nor after."""
    with full_listener() as port:
        when = min(after(seconds), after(deadline))
        error = await fails_at_its_deadline(lambda: open_tcp_stream(LOCALHOST, port, deadline=when))
    assert (error.op, error.deadline) == ("connect", when)
    assert trio.current_time() == max(when, 0.0)


@pytest.mark.parametrize("deadline", [sys.float_info.max, 2.0**63, INF])
async def test_dial_timeout_max_duration(autojump_clock: MockClock, deadline: float) -> None:
    """TestDialTimeoutMaxDuration: a huge time does not overflow into one that has passed."""
    async with local_listener() as (_, port), await open_tcp_stream(LOCALHOST, port, deadline=deadline) as client:
        assert client.socket.getpeername() == (LOCALHOST, port)


@pytest.mark.parametrize(("seconds", "queued"), [(-5.0, True), (0.01, False)])
async def test_accept_timeout(autojump_clock: MockClock, seconds: float, queued: bool) -> None:
    """TestAcceptTimeout: an expired accept fails even with a connection in the queue."""
    async with local_listener() as (listener, port), trio.open_nursery() as nursery:
        if queued:
            client = await open_tcp_stream(LOCALHOST, port)
            nursery.start_soon(client.aclose)
        when = after(seconds)
        listener.set_deadline(when)
        for _ in range(2):
            error = await fails_at_its_deadline(listener.accept)
            assert (error.op, error.deadline) == ("accept", when)
        assert trio.current_time() == max(when, 0.0)


async def test_accept_timeout_must_return(autojump_clock: MockClock) -> None:
    """TestAcceptTimeoutMustReturn: the later of two settings wins."""
    async with local_listener() as (listener, _):
        listener.set_deadline(INF)
        listener.set_deadline(after(0.01))
        await fails_at_its_deadline(listener.accept)
        assert trio.current_time() == 0.01


async def test_accept_timeout_must_not_return(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """TestAcceptTimeoutMustNotReturn: clearing an expired deadline leaves none."""
    async with local_listener() as (listener, _):
        listener.set_deadline(past())
        listener.set_deadline(INF)
        accept = Attempt(nursery, listener.accept)
        await trio.sleep(0.1)
        assert accept.pending
        await listener.aclose()
        await accept.done()
        assert accept.raised(trio.ClosedResourceError)


# reading


async def test_read_timeout_in_the_past(autojump_clock: MockClock) -> None:
    """TestReadTimeout, first row: it fails with data there, and fails again."""
    async with tcp_pair() as (client, server):
        await server.send_all(READ_TEXT)
        client.set_read_deadline(past())
        for _ in range(2):
            await fails_at_its_deadline(lambda: client.receive_some(1))
        assert trio.current_time() == 0.0


async def test_read_timeout_in_the_future(autojump_clock: MockClock) -> None:
    """TestReadTimeout, second row: what had expired is refreshed, then byte after byte until the time is over."""
    async with tcp_pair() as (client, server):
        await server.send_all(READ_TEXT)
        client.set_read_deadline(past())
        await fails_at_its_deadline(lambda: client.receive_some(1))
        client.set_read_deadline(after(0.05))
        received = await read_bytes_slowly(lambda: client.receive_some(1), a_third_of(50))
        assert received == READ_TEXT[:4]
        await fails_at_its_deadline(lambda: client.receive_some(1))


async def read_bytes_slowly(read: Callable[[], Awaitable[bytes]], pause: float) -> bytes:
    received = b""
    try:
        while True:
            received += await read()
            await trio.sleep(pause)
    except DeadlineExceeded:
        return received


async def test_read_timeout_must_not_return(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """TestReadTimeoutMustNotReturn: an expired write deadline is no concern of a read."""
    async with tcp_pair() as (client, _):
        client.set_deadline(past())
        client.set_write_deadline(past())
        client.set_read_deadline(INF)
        read = Attempt(nursery, lambda: client.receive_some(1))
        await trio.sleep(0.1)
        assert read.pending
        await client.aclose()
        await read.done()
        assert read.raised(trio.ClosedResourceError)


async def test_read_from_timeout(autojump_clock: MockClock) -> None:
    """TestReadFromTimeout: the same for datagrams."""
    async with await open_udp(LOCALHOST) as receiver, await open_udp(LOCALHOST) as sender:
        for _ in READ_TEXT:
            await sender.send_to(READ_TEXT, receiver.socket.getsockname())
        receiver.set_read_deadline(past())
        for _ in range(2):
            await fails_at_its_deadline(receiver.receive_from)
        receiver.set_read_deadline(after(0.05))

        async def read() -> bytes:
            return (await receiver.receive_from(1))[0]

        assert await read_bytes_slowly(read, a_third_of(50)) == READ_TEXT[:1] * 4
        await fails_at_its_deadline(receiver.receive_from)


# writing


@pytest.mark.parametrize(("seconds", "writes"), [(-5.0, 0), (0.01, 4)])
async def test_write_timeout(autojump_clock: MockClock, seconds: float, writes: int) -> None:
    """TestWriteTimeout: a write fails with room in the buffer, and sends nothing."""
    async with tcp_pair() as (client, server):
        client.set_write_deadline(after(seconds))
        assert await write_slowly(lambda: client.send_all(WRITE_TEXT), a_third_of(10)) == writes
        error = await fails_at_its_deadline(lambda: client.send_all(WRITE_TEXT))
        assert (error.op, error.sent) == ("write", 0)
        await client.send_eof()
        assert await receive_exactly(server, 1000) == WRITE_TEXT * writes


async def write_slowly(write: Callable[[], Awaitable[None]], pause: float) -> int:
    writes = 0
    try:
        while True:
            await write()
            writes += 1
            await trio.sleep(pause)
    except DeadlineExceeded as error:
        assert error.sent == 0
        return writes


async def test_write_timeout_must_not_return(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """TestWriteTimeoutMustNotReturn: an expired read deadline is no concern of a write that finds no room."""
    async with tcp_pair() as (client, _):
        client.set_deadline(past())
        client.set_read_deadline(past())
        client.set_write_deadline(INF)

        async def write_until_it_fails() -> None:
            while True:
                await client.send_all(bytes(1024))

        write = Attempt(nursery, write_until_it_fails)
        await trio.sleep(0.1)
        assert write.pending
        await client.aclose()
        await write.done()
        assert write.raised(trio.ClosedResourceError)


@pytest.mark.parametrize(("seconds", "writes"), [(-5.0, 0), (0.01, 4)])
async def test_write_to_timeout(autojump_clock: MockClock, seconds: float, writes: int) -> None:
    """TestWriteToTimeout: the same for datagrams."""
    async with await open_udp(LOCALHOST) as receiver, await open_udp(LOCALHOST) as sender:
        address = receiver.socket.getsockname()
        sender.set_write_deadline(after(seconds))
        assert await write_slowly(lambda: sender.send_to(WRITE_TEXT, address), a_third_of(10)) == writes
        await fails_at_its_deadline(lambda: sender.send_to(WRITE_TEXT, address))


# precision, on the real clock


async def never_early(
    operation: Callable[[], Awaitable[object]], set_deadline: Callable[[float], None], most: float
) -> None:
    """Go's dynamic growth: longer and longer deadlines until one is met to a tenth, or `most` seconds are reached."""
    seconds = 0.001
    while seconds < most:
        started = trio.current_time()
        deadline = started + seconds
        set_deadline(deadline)
        error = await fails_at_its_deadline(operation)
        elapsed = trio.current_time() - started
        assert trio.current_time() >= deadline
        assert error.deadline == deadline
        if elapsed <= 1.1 * seconds:
            return
        seconds = 1.25 * elapsed


async def test_read_timeout_fluctuation() -> None:
    """TestReadTimeoutFluctuation."""
    async with tcp_pair() as (client, _):
        await never_early(lambda: client.receive_some(256), client.set_read_deadline, most=0.5)


async def test_read_from_timeout_fluctuation() -> None:
    """TestReadFromTimeoutFluctuation."""
    async with await open_udp(LOCALHOST) as receiver:
        await never_early(lambda: receiver.receive_from(256), receiver.set_read_deadline, most=0.5)


@pytest.mark.parametrize("full", [False, True], ids=["with room", "buffer full"])
async def test_write_timeout_fluctuation(full: bool) -> None:
    """TestWriteTimeoutFluctuation: small writes until the deadline, into a buffer with room and into a full one."""
    async with tcp_pair() as (client, _):
        if full:
            await clog(client)

        async def write_until_it_fails() -> None:
            while True:
                await client.send_all(WRITE_TEXT)

        await never_early(write_until_it_fails, client.set_write_deadline, most=0.5)


async def test_accept_timeout_fluctuation() -> None:
    """As the read's: an accept is one."""
    async with local_listener() as (listener, _):
        await never_early(listener.accept, listener.set_deadline, most=0.5)


# many deadlines, and deadlines that move


@pytest.mark.parametrize("seconds", VARIOUS)
async def test_various_deadlines(autojump_clock: MockClock, seconds: float) -> None:
    """TestVariousDeadlines: one deadline for both directions; copying until it ends, ends then and not before."""
    async with tcp_pair() as (client, server):
        await server.send_all(b"x")
        client.set_deadline(seconds)
        assert await client.receive_some() == b"x"
        error = await fails_at_its_deadline(client.receive_some)
        assert trio.current_time() == error.deadline == seconds


@pytest.mark.parametrize("seconds", [0.0, -1 * NANOSECOND])
async def test_now_is_not_none(autojump_clock: MockClock, seconds: float) -> None:
    """setDeadlineImpl: a deadline that is now means at once, not never."""
    async with unix_pair() as (client, _):
        client.set_read_deadline(after(seconds))
        await fails_at_its_deadline(client.receive_some)
        assert trio.current_time() == 0.0


async def test_read_write_prolonged_timeout() -> None:
    """TestReadWriteProlongedTimeout: two tasks extend a direction each, a thousand times; nothing fails."""
    rounds = 1000
    async with tcp_pair() as (client, server), trio.open_nursery() as nursery:

        async def echo_reads() -> None:
            for _ in range(rounds):
                server.set_read_deadline(after(HOUR))
                assert await server.receive_some(1) == b"q"

        async def echo_writes() -> None:
            for _ in range(rounds):
                server.set_write_deadline(after(HOUR))
                await server.send_all(b"a")

        nursery.start_soon(echo_reads)
        nursery.start_soon(echo_writes)
        for _ in range(rounds):
            await client.send_all(b"q")
            assert await client.receive_some(1) == b"a"
        assert server.read_deadline > after(HOUR / 2)
        assert server.write_deadline > after(HOUR / 2)


async def test_read_write_deadline_race() -> None:
    """TestReadWriteDeadlineRace: deadlines two microseconds ahead, moved all the time beside reads and writes."""
    rounds = 1000
    async with tcp_pair() as (client, server):
        outcomes = {"read": 0, "write": 0}

        async def move_deadlines() -> None:
            while True:
                client.set_read_deadline(after(2 * MICROSECOND))
                client.set_write_deadline(after(2 * MICROSECOND))
                await trio.lowlevel.checkpoint()

        async def repeat(op: str, operation: Callable[[], Awaitable[object]]) -> None:
            for _ in range(rounds):
                try:
                    await operation()
                except DeadlineExceeded as error:
                    assert error.op == op
                outcomes[op] += 1

        await server.send_all(bytes(rounds))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(move_deadlines)
            async with trio.open_nursery() as racers:
                racers.start_soon(repeat, "read", lambda: client.receive_some(1))
                racers.start_soon(repeat, "write", lambda: client.send_all(b"x"))
            nursery.cancel_scope.cancel()
        assert outcomes == {"read": rounds, "write": rounds}
        assert_heap_is_sound()
        client.set_deadline(INF)
        await client.send_all(b"still whole")


async def test_concurrent_set_deadline(autojump_clock: MockClock) -> None:
    """TestConcurrentSetDeadline: eight tasks move ten connections' deadlines, sixteen thousand times, to and fro."""
    async with trio.open_nursery() as pairs:
        conns: list[Conn] = [await pairs.start(keep_open) for _ in range(10)]

        async def move(task: int) -> None:
            for tries in range(100, 0, -1):
                for k, conn in enumerate(conns):
                    conn.set_read_deadline(after(2 * HOUR + task * tries * k))
                    conn.set_write_deadline(after(HOUR + task * tries * k))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as movers:
            for task in range(8):
                movers.start_soon(move, task)
        assert_heap_is_sound()
        for conn in conns:
            assert conn.read_deadline == conn.write_deadline + HOUR
        # the whole heap comes due, in order
        order: list[float] = []

        async def wait_for_deadline(conn: Conn) -> None:
            error = await fails_at_its_deadline(conn.receive_some)
            assert trio.current_time() >= error.deadline
            order.append(error.deadline)

        async with trio.open_nursery() as readers:
            for conn in conns:
                readers.start_soon(wait_for_deadline, conn)
        assert order == sorted(order)
        assert trio.current_time() == max(order)
        assert_heap_is_sound()
        pairs.cancel_scope.cancel()


async def keep_open(task_status: trio.TaskStatus[Conn]) -> None:
    async with unix_pair() as (conn, _):
        task_status.started(conn)
        await trio.sleep_forever()


# of os/timeout_test.go


async def test_nonpollable_deadline() -> None:
    """os: TestNonpollableDeadline: a regular file cannot have deadlines, and that is what the error says."""
    with tempfile.TemporaryFile() as file, pytest.raises(io.UnsupportedOperation, match="deadline"):
        current_host().open(file.fileno())


async def test_racy_read() -> None:
    """os: TestRacyRead: reads against deadlines of a millisecond fail by these only, and lose nothing."""
    async with tcp_pair() as (client, server), trio.open_nursery() as nursery:
        size = 100 * 1024
        nursery.start_soon(send_and_end, server, bytes(range(256)) * (size // 256))
        client.set_read_deadline(after(0.001))
        received = b""
        while len(received) < size:
            try:
                received += await client.receive_some(1024)
            except DeadlineExceeded:
                client.set_read_deadline(after(0.001))
        assert received == bytes(range(256)) * (size // 256)


async def send_and_end(conn: Conn, data: bytes) -> None:
    for start in range(0, len(data), 1000):
        await conn.send_all(data[start : start + 1000])
        await trio.sleep(0.0001)
    await conn.send_eof()


async def test_racy_write(autojump_clock: MockClock) -> None:
    """os: TestRacyWrite: once a write has failed its buffer is the caller's again, to change or to shrink."""
    async with tcp_pair() as (client, _):
        await clog(client)
        buffer = bytearray(b"x" * 1024)
        client.set_write_deadline(after(0.001))
        with pytest.raises(DeadlineExceeded) as caught:
            await client.send_all(buffer)
        buffer.clear()  # a BufferError if anybody held on to it
        assert caught.value.sent == 0


@over_tcp_and_unix
async def test_tty_close(pair: PairMaker, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """os: TestTTYClose: closing ends a pending read, with no time passing."""
    async with pair() as (client, _):
        client.set_read_deadline(after(1.0))
        read = Attempt(nursery, client.receive_some)
        await trio.testing.wait_all_tasks_blocked()
        await client.aclose()
        await read.done()
        assert read.raised(trio.ClosedResourceError)
        assert read.ended == 0.0


async def test_datagram_setters_take_effect_apart(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """TestReadTimeoutMustNotReturn for datagrams."""
    async with await open_udp(LOCALHOST) as conn:
        conn.set_deadline(past())
        conn.set_read_deadline(INF)
        await fails_at_its_deadline(lambda: conn.send_to(b"x", (LOCALHOST, 9)))
        read: Attempt[object] = Attempt(nursery, conn.receive_from)
        await trio.sleep(0.1)
        assert read.pending
        await conn.aclose()
        await read.done()
        assert read.raised(trio.ClosedResourceError)
