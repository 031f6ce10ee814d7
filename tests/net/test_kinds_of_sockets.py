"""A socket that a class cannot use is refused when it is made, with the class that can."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterator

import pytest

from deadlined import Conn, Listener, PacketConn
from tests.support.net import LOCALHOST, forget_who_listens, unix_sockets

# on which of its sockets listen() was called
TELLS = sys.platform not in ("darwin", "openbsd")

Make = Callable[[socket.socket], object]

DATAGRAMS = "not <SocketKind.SOCK_DGRAM: 2>: use a PacketConn"
STREAM = "not <SocketKind.SOCK_STREAM: 1>: use a "


@pytest.fixture
def datagrams() -> Iterator[socket.socket]:
    with socket.socket(type=socket.SOCK_DGRAM) as made:
        yield made


@pytest.fixture
def connected() -> Iterator[socket.socket]:
    one, other = unix_sockets()
    with one, other:
        yield one


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server((LOCALHOST, 0)) as made:
        yield made


@pytest.mark.parametrize("make", [Conn, Conn.from_socket])
async def test_a_conn(make: Make, datagrams: socket.socket, listening: socket.socket) -> None:
    with pytest.raises(ValueError, match=f"^a Conn needs a SOCK_STREAM socket, {re.escape(DATAGRAMS)}$"):
        make(datagrams)
    if TELLS:
        with pytest.raises(
            ValueError, match=r"^a Conn needs a connected socket, and this one listens: use a Listener$"
        ):
            make(listening)
    # it is still the caller's, as it was
    assert datagrams.fileno() >= 0
    assert datagrams.getblocking()


@pytest.mark.parametrize("make", [Listener, Listener.from_socket])
async def test_a_listener(make: Make, datagrams: socket.socket, connected: socket.socket) -> None:
    needs = r"^a Listener needs a SOCK_STREAM socket on which listen\(\) was called: use a "
    with pytest.raises(ValueError, match=f"{needs}PacketConn$"):
        make(datagrams)
    if TELLS:
        with pytest.raises(ValueError, match=f"{needs}Conn if it is connected$"):
            make(connected)


@pytest.mark.parametrize("make", [PacketConn, PacketConn.from_socket])
async def test_a_packetconn(make: Make, connected: socket.socket, listening: socket.socket) -> None:
    needs = f"^a PacketConn needs a SOCK_DGRAM socket, {re.escape(STREAM)}"
    with pytest.raises(ValueError, match=f"{needs}Conn if it is connected$"):
        make(connected)
    with pytest.raises(ValueError, match=f"{needs}{'Listener' if TELLS else 'Conn if it is connected'}$"):
        make(listening)


async def test_none_is_refused_where_the_kernel_cannot_tell(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_who_listens(monkeypatch)
    Conn(listening.dup()).close()
    Listener(listening.dup()).close()
