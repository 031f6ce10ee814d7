"""What isinstance() says of the streams."""

from __future__ import annotations

import trio

from deadlined import Conn, TlsConn


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


def test_no_other_stream_is_taken_for_a_conn() -> None:
    # the order matters: an abstract class remembers what it was asked
    assert issubclass(trio.SocketStream, trio.abc.HalfCloseableStream)
    assert not issubclass(trio.SocketStream, Conn)
    assert not issubclass(TlsConn, Conn)


def test_a_stream_that_is_no_conn_is_still_a_stream_of_trio() -> None:
    assert not issubclass(Foreign, Conn)
    assert issubclass(Foreign, trio.abc.HalfCloseableStream)
