"""Go's net_test.go, conn_test.go and pipe_test.go on a trio stream. Each test names the Go test that it restates."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from deadlined import (
    Conn,
    DeadlineExceeded,
    Listener,
    open_tcp_listeners,
    open_tcp_stream,
    open_unix_listener,
    open_unix_stream,
)
from tests.support.net import HOUR, Attempt, PairMaker, after, over_tcp_and_unix, receive_exactly, tcp_pair, unix_pair


@over_tcp_and_unix
async def test_read_timeout_unblocks_read(pair: PairMaker, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """TestReadTimeoutUnblocksRead: another task cancels a pending read by a deadline in 1970."""
    async with pair() as (client, _):
        read = Attempt(nursery, lambda: client.receive_some(1))
        await trio.sleep(0.1)
        assert read.pending
        client.set_read_deadline(123.0 - 1e9)
        await read.done()
        assert read.raised(DeadlineExceeded)
        assert read.ended == 0.1


@over_tcp_and_unix
async def test_close_unblocks_read(pair: PairMaker, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """TestCloseUnblocksRead: the peer's close is the end of the stream, not an error."""
    async with pair() as (client, server):
        read = Attempt(nursery, lambda: client.receive_some(1))
        await trio.sleep(0.02)
        assert read.pending
        await server.aclose()
        await read.done()
        assert read.error is None
        assert read.result == b""


@over_tcp_and_unix
@pytest.mark.parametrize("size", [0, -1])
async def test_zero_byte_read(pair: PairMaker, size: int) -> None:
    """TestZeroByteRead: where Go reads nothing at once, trio's contract asks for a ValueError at once; also
    after the deadline."""
    async with pair() as (client, _):
        with pytest.raises(ValueError, match="at least 1"):
            await client.receive_some(size)
        client.set_read_deadline(0.0)
        with pytest.raises(ValueError, match="at least 1"):
            await client.receive_some(size)


@pytest.mark.parametrize("size", [1.0, "1"])
async def test_a_size_is_an_int(size: object) -> None:
    async with unix_pair() as (client, _):
        with pytest.raises(TypeError, match="int"):
            await client.receive_some(size)  # type: ignore[arg-type]


async def test_not_temporary_read() -> None:
    """TestNotTemporaryRead: a reset is an error, neither the end of the stream nor a timeout, and it stays."""
    async with tcp_pair() as (client, server):
        server.abort()
        with pytest.raises(trio.BrokenResourceError) as caught:
            await client.receive_some(1)
        assert isinstance(caught.value.__cause__, ConnectionResetError)


async def serve_one_echo(listener: Listener) -> None:
    async with await listener.accept() as conn:
        await conn.send_all(await receive_exactly(conn, 4))


async def echo(listener: Listener, client: Conn) -> None:
    async with trio.open_nursery() as nursery, client:
        nursery.start_soon(serve_one_echo, listener)
        client.set_deadline(after(HOUR))
        client.set_read_deadline(after(HOUR))
        client.set_write_deadline(after(HOUR))
        await client.send_all(b"echo")
        assert await receive_exactly(client, 4) == b"echo"


async def test_conn_and_listener_over_tcp() -> None:
    """TestConnAndListener: a round trip with every deadline an hour ahead."""
    for listener in await open_tcp_listeners(0, host="localhost"):
        async with listener:
            host, port, *_ = listener.socket.getsockname()
            await echo(listener, await open_tcp_stream(host, port))


async def test_conn_and_listener_over_unix(tmp_path: Path) -> None:
    """TestConnAndListener, the row of unix sockets."""
    async with await open_unix_listener(tmp_path / "s") as listener:
        await echo(listener, await open_unix_stream(tmp_path / "s"))


async def test_pipe_close_error() -> None:
    """TestPipeCloseError: everything fails on the end that was closed; the other one reads the end and cannot write.

    A kernel's socket does not mind deadlines after its peer has gone, which Go's pipe does.
    """
    async with unix_pair() as (client, server):
        await client.aclose()
        for operation in (client.receive_some, client.send_eof, client.wait_send_all_might_not_block):
            with pytest.raises(trio.ClosedResourceError):
                await operation()
        with pytest.raises(trio.ClosedResourceError):
            await client.send_all(b"")
        for set_deadline in (client.set_deadline, client.set_read_deadline, client.set_write_deadline):
            with pytest.raises(trio.ClosedResourceError):
                set_deadline(0.0)
        server.set_deadline(after(HOUR))
        assert await server.receive_some() == b""
        with pytest.raises(trio.BrokenResourceError):
            await server.send_all(b"x")
