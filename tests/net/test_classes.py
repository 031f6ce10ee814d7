"""What isinstance() says of the streams."""

from __future__ import annotations

import trio

from deadlined import Conn, TlsConn
from tests.support.tls import tls_pair


class Foreign(trio.abc.HalfCloseableStream):
    """A stream of another library."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        return None

    async def wait_send_all_might_not_block(self) -> None:
        return None

    async def send_eof(self) -> None:
        return None

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return b""

    async def aclose(self) -> None:
        return None


def test_a_conn_is_a_stream_of_trio() -> None:
    assert issubclass(Conn, trio.abc.HalfCloseableStream)
    assert issubclass(TlsConn, trio.abc.HalfCloseableStream)


async def test_they_are_for_type_checkers_too() -> None:
    """No assignment here fails when it runs: mypy reads it."""
    async with tls_pair() as (client, _):
        streams: list[trio.abc.HalfCloseableStream] = [client, client.conn]
        plain: trio.abc.Stream = client.conn
        through_tls: trio.abc.Stream = client
        assert streams == [through_tls, plain]
        # not only registered: no type checker knows of that
        assert all(trio.abc.HalfCloseableStream in type(each).__mro__ for each in streams)


def test_no_other_stream_is_taken_for_a_conn() -> None:
    # the order matters: an abstract class remembers what it was asked
    assert issubclass(trio.SocketStream, trio.abc.HalfCloseableStream)
    assert not issubclass(trio.SocketStream, Conn)
    assert not issubclass(TlsConn, Conn)


def test_a_stream_that_is_no_conn_is_still_a_stream_of_trio() -> None:
    assert not issubclass(Foreign, Conn)
    assert issubclass(Foreign, trio.abc.HalfCloseableStream)
