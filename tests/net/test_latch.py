"""What is remembered after a short read: the kernel is not asked again before its next edge, unless the end came."""

from __future__ import annotations

import math
import socket
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from deadlined import Conn, DeadlineExceeded
from deadlined.runtime import ReadyCallback
from tests.support.builds import interpreted_only
from tests.support.net import (
    INF,
    PairMaker,
    clog,
    count_sleeps,
    fails_at_its_deadline,
    over_tcp_and_unix,
    past,
    tcp_pair,
    tcp_sockets,
    unix_pair,
)


class Called(ReadyCallback):
    """Counts its calls."""

    calls = 0

    def on_ready(self) -> None:
        self.calls += 1


class CountingSocket(socket.socket):
    """Counts how often its bytes are asked for."""

    asked = 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.asked += 1
        return super().recv(size, flags)


async def received(conn: Conn) -> bytes:
    """The next bytes in the way of a server: the kernel is not asked for what it is known not to have."""
    data = None if conn.drained else conn.try_receive()
    while data is None:
        await conn.wait_readable()
        data = conn.try_receive()
    return data


async def test_a_short_read_drains_and_the_next_edge_fills() -> None:
    async with tcp_pair() as (client, server):
        assert not server.drained
        await client.send_all(b"one")
        assert await received(server) == b"one"
        assert server.drained
        await client.send_all(b"two")
        await wait_all_tasks_blocked()
        assert not server.drained
        assert await received(server) == b"two"


async def test_a_full_read_does_not_drain() -> None:
    async with tcp_pair() as (client, server):
        await client.send_all(b"four")
        await server.wait_readable()
        assert server.try_receive(4) == b"four"
        assert not server.drained


async def test_a_read_that_finds_nothing_does_not_drain() -> None:
    async with tcp_pair() as (_, server):
        assert server.try_receive() is None
        assert not server.drained


async def test_the_end_that_came_with_the_last_bytes_is_found(autojump_clock: MockClock) -> None:
    """Bytes and FIN in one edge: it was the last one, so whoever slept after the bytes would sleep for ever."""
    async with tcp_pair() as (client, server):
        server.set_read_timeout(60)
        # without a checkpoint in between, so that the kernel reports both at once
        client.try_send(b"last words")
        client.shutdown_write()
        await server.wait_readable()
        assert await received(server) == b"last words"
        assert not server.drained
        assert await received(server) == b""
        assert trio.current_time() == 0


async def test_the_end_that_comes_after_the_last_bytes_is_found(autojump_clock: MockClock) -> None:
    async with tcp_pair() as (client, server):
        server.set_read_timeout(60)
        await client.send_all(b"last words")
        assert await received(server) == b"last words"
        assert server.drained
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_eof)
            assert await received(server) == b""
        assert trio.current_time() == 0


async def test_a_reset_of_a_drained_connection_is_found(autojump_clock: MockClock) -> None:
    async with tcp_pair() as (client, server):
        server.set_read_timeout(60)
        await client.send_all(b"x")
        assert await received(server) == b"x"
        assert server.drained
        client.abort()
        with pytest.raises(trio.BrokenResourceError):
            await received(server)
        assert trio.current_time() == 0


async def test_a_drained_connection_ends_by_its_deadline(autojump_clock: MockClock) -> None:
    async with tcp_pair() as (client, server):
        await client.send_all(b"x")
        assert await received(server) == b"x"
        assert server.drained
        server.set_read_timeout(5)
        with pytest.raises(DeadlineExceeded):
            await received(server)
        assert trio.current_time() == 5


WAYS = pytest.mark.parametrize("receive", [received, Conn.receive_some], ids=["as a server", "as a stream"])
Receive = Callable[[Conn], Awaitable[bytes]]


@WAYS
@pytest.mark.parametrize("seen", [True, False], ids=["after its edge", "before its edge"])
async def test_what_comes_behind_urgent_data_is_received(
    receive: Receive, seen: bool, autojump_clock: MockClock
) -> None:
    """A read of TCP ends there, short as it is, and what lies behind it makes no edge."""
    async with tcp_pair() as (client, server):
        for data, flags in ((b"one", 0), (b"!", socket.MSG_OOB), (b"two", 0)):
            client.socket.send(data, flags)
        if seen:
            await wait_all_tasks_blocked()
        server.set_read_timeout(60)
        assert [await receive(server) for _ in range(2)] == [b"one", b"two"]
        assert trio.current_time() == 0


@WAYS
async def test_urgent_data_at_any_later_time_loses_nothing(receive: Receive, autojump_clock: MockClock) -> None:
    async with tcp_pair() as (client, server):
        server.set_read_timeout(60)
        await client.send_all(b"zero")
        assert await receive(server) == b"zero"
        assert server.drained
        for number in range(3):
            for data, flags in ((b"one", 0), (b"!", socket.MSG_OOB), (b"two", 0)):
                client.socket.send(data, flags)
                if number == 1:
                    await wait_all_tasks_blocked()
            got = b""
            while len(got) < 6:
                got += await receive(server)
            assert got == b"onetwo"
            assert not server.drained
        assert trio.current_time() == 0


async def test_a_receive_is_one_checkpoint_whenever_the_bytes_come(autojump_clock: MockClock) -> None:
    async with tcp_pair() as (client, server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_all, b"while it sleeps")
            assert await count_sleeps(server.receive_some) == 1
        await client.send_all(b"before")
        await wait_all_tasks_blocked()
        assert await count_sleeps(server.receive_some) == 1


async def test_a_receive_that_was_full_asks_again() -> None:
    async with tcp_pair() as (client, server):
        await client.send_all(b"abcdefgh")
        await wait_all_tasks_blocked()
        assert [await server.receive_some(4) for _ in range(2)] == [b"abcd", b"efgh"]
        assert not server.drained


async def test_a_receive_finds_the_end_that_came_with_the_last_bytes(autojump_clock: MockClock) -> None:
    async with tcp_pair() as (client, server):
        server.set_read_timeout(60)
        client.try_send(b"last words")
        client.shutdown_write()
        await wait_all_tasks_blocked()
        assert await server.receive_some() == b"last words"
        assert await server.receive_some() == b""
        assert await server.receive_some() == b""
        assert trio.current_time() == 0


@WAYS
async def test_what_comes_behind_a_descriptor_that_was_passed_is_received(
    receive: Receive, autojump_clock: MockClock
) -> None:
    """A read of a unix socket ends there, short as it is, and what lies behind it makes no edge."""
    ours, theirs = socket.socketpair()
    async with Conn.from_socket(ours) as conn:
        with theirs:
            socket.send_fds(theirs, [b"one"], [theirs.fileno()])
            theirs.send(b"two")
            conn.set_read_timeout(60)
            await wait_all_tasks_blocked()
            assert [await receive(conn) for _ in range(2)] == [b"one", b"two"]
            assert trio.current_time() == 0


@interpreted_only
async def test_the_kernel_says_itself_that_a_unix_socket_is_drained(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, server):
        called = Called()
        for number in range(1, 4):
            client.try_send(b"one")
            await wait_all_tasks_blocked()
            assert not server.ask_if_drained()
            assert await server.receive_some() == b"one"
            assert not server.drained
            assert server.ask_if_drained()
            assert server.drained
            assert server.call_when_readable(called)
            client.try_send(b"two")
            await wait_all_tasks_blocked()
            assert called.calls == number
            assert server.try_receive() == b"two"


@interpreted_only
async def test_readiness_that_is_over_does_not_end_a_wait_once_the_kernel_was_asked() -> None:
    async with unix_pair() as (client, server):
        client.try_send(b"one")
        await wait_all_tasks_blocked()
        assert server.receive_ready() == b"one"
        assert server.ask_if_drained()
        assert server.call_when_readable(Called())
        server.cancel_call()


@over_tcp_and_unix
async def test_what_is_there_is_not_lost_by_asking(pair: PairMaker) -> None:
    async with pair() as (client, server):
        client.try_send(b"last words")
        client.shutdown_write()
        await wait_all_tasks_blocked()
        for expected in (b"last words", b"", b""):
            assert not server.ask_if_drained()
            assert server.try_receive() == expected


async def test_a_reset_is_not_lost_by_asking() -> None:
    async with tcp_pair() as (client, server):
        client.abort()
        await wait_all_tasks_blocked()
        assert not server.ask_if_drained()
        with pytest.raises(trio.BrokenResourceError):
            server.try_receive()
        server.close()
        assert not server.ask_if_drained()


async def test_what_comes_behind_a_descriptor_that_was_passed_is_known_by_asking() -> None:
    ours, theirs = socket.socketpair()
    async with Conn.from_socket(ours) as conn:
        with theirs:
            socket.send_fds(theirs, [b"one"], [theirs.fileno()])
            theirs.send(b"two")
            for expected in (b"one", b"two"):
                assert not conn.ask_if_drained()
                assert conn.try_receive() == expected
            assert conn.ask_if_drained()


@pytest.mark.parametrize("data", [b"1", b"several"])
async def test_a_receive_asks_the_kernel_once_for_each_edge(data: bytes) -> None:
    left, right = tcp_sockets()
    counting = CountingSocket(fileno=right.detach())
    async with Conn.from_socket(left) as client, Conn.from_socket(counting) as server:

        async def send_when_it_waits() -> None:
            await wait_all_tasks_blocked()
            await client.send_all(data)

        # the first receive asks before it waits; the others know what the one before has found
        for asked in (2, 3, 4):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_when_it_waits)
                assert await server.receive_some() == data
            assert counting.asked == asked


async def test_a_receive_that_comes_too_late_is_a_checkpoint_also_of_a_drained_connection() -> None:
    """A loop that tries again and again must let other tasks run."""
    async with tcp_pair() as (client, server):
        await client.send_all(b"x")
        assert await received(server) == b"x"
        assert server.drained
        server.set_read_deadline(past())

        async def late() -> None:
            with pytest.raises(DeadlineExceeded):
                await server.receive_some()

        with assert_checkpoints():
            assert await count_sleeps(late) == 1
        with trio.CancelScope() as scope:
            scope.cancel()
            await server.receive_some()
        assert scope.cancelled_caught


async def test_an_attempt_asks_the_kernel_also_of_a_drained_connection() -> None:
    async with tcp_pair() as (client, server):
        await client.send_all(b"one")
        assert await received(server) == b"one"
        await client.send_all(b"two")
        while (data := server.try_receive()) is None:
            await trio.lowlevel.checkpoint()
        assert data == b"two"


class TestTimeouts:
    """A timeout is the deadline that lies so many seconds ahead."""

    async def test_it_sets_the_deadline_of_its_direction(self, mock_clock: MockClock) -> None:
        async with tcp_pair() as (conn, _):
            mock_clock.jump(7)
            conn.set_read_timeout(5)
            assert (conn.read_deadline, conn.write_deadline) == (12, INF)
            conn.set_write_timeout(6)
            assert (conn.read_deadline, conn.write_deadline) == (12, 13)
            conn.set_timeout(1)
            assert (conn.read_deadline, conn.write_deadline) == (8, 8)

    @pytest.mark.parametrize("seconds", [0, -1, -INF])
    async def test_none_or_less_expires_at_once_and_wakes_who_waits(
        self, seconds: float, autojump_clock: MockClock
    ) -> None:
        async with tcp_pair() as (conn, _), trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(DeadlineExceeded):
                    await conn.receive_some()

            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            conn.set_read_timeout(seconds)

    async def test_inf_is_none(self, mock_clock: MockClock) -> None:
        async with tcp_pair() as (conn, _):
            conn.set_timeout(5)
            conn.set_timeout(INF)
            assert (conn.read_deadline, conn.write_deadline) == (INF, INF)

    async def test_nan_is_refused_and_moves_nothing(self, mock_clock: MockClock) -> None:
        async with tcp_pair() as (conn, _):
            conn.set_timeout(5)
            for setter in (conn.set_read_timeout, conn.set_write_timeout, conn.set_timeout):
                with pytest.raises(ValueError, match="NaN"):
                    setter(math.nan)
            assert (conn.read_deadline, conn.write_deadline) == (5, 5)

    async def test_of_a_closed_connection_there_is_none(self) -> None:
        async with tcp_pair() as (conn, _):
            await conn.aclose()
            for setter in (conn.set_read_timeout, conn.set_write_timeout, conn.set_timeout):
                with pytest.raises(trio.ClosedResourceError):
                    setter(5)

    async def test_real_time_is_the_runs_time(self) -> None:
        async with tcp_pair() as (conn, _):
            before = trio.current_time()
            conn.set_read_timeout(100)
            assert before + 100 <= conn.read_deadline <= trio.current_time() + 100
            conn.set_timeout(50)
            assert before + 50 <= conn.read_deadline == conn.write_deadline <= trio.current_time() + 50

    @pytest.mark.parametrize("setter", ["set_deadline", "set_timeout"])
    @pytest.mark.parametrize("back", [9.0, 10.0, 11.0], ids=["earlier", "the same", "later"])
    async def test_from_the_future_to_the_past_and_back(
        self, setter: str, back: float, autojump_clock: MockClock
    ) -> None:
        """With the twins of each direction, and of both."""

        def move(when: float) -> None:
            argument = when if setter == "set_deadline" else when - trio.current_time()
            getattr(conn, setter.replace("set", f"set{direction}"))(argument)

        for direction in ("_read", "_write", ""):
            async with tcp_pair() as (conn, _):
                start = trio.current_time()
                await clog(conn)
                for when in (start + 10.0, start - 1.0, start + back):
                    move(when)
                async with trio.open_nursery() as nursery:
                    if direction != "_write":
                        nursery.start_soon(fails_at_its_deadline, conn.receive_some)
                    if direction != "_read":
                        nursery.start_soon(fails_at_its_deadline, conn.wait_send_all_might_not_block)
                assert trio.current_time() == start + back
