"""What the kernel tells of a socket."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator

import pytest

from deadlined.net.sockets import unsent
from tests.support.builds import interpreted_only
from tests.support.net import LOCALHOST

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other kernels have their own way to tell")

Pair = tuple[socket.socket, socket.socket]


def tcp_pair() -> Pair:
    with socket.create_server((LOCALHOST, 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


@pytest.fixture(params=[socket.socketpair, tcp_pair], ids=["unix", "tcp"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    left, right = request.param()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        yield left, right


def fill(sender: socket.socket) -> None:
    """Send until the kernel takes no more."""
    try:
        while True:
            sender.send(bytes(4096))
    except BlockingIOError:
        return


def empty(receiver: socket.socket) -> None:
    """Receive until nothing is there."""
    try:
        while receiver.recv(1 << 20):
            continue
    except BlockingIOError:
        return


def test_what_a_peer_does_not_take_is_unsent_until_it_does(pair: Pair) -> None:
    left, right = pair
    assert unsent(left) == 0
    fill(left)
    held = unsent(left)
    assert held > 0
    assert unsent(right) == 0
    # over TCP what arrives lets more come, a moment later
    for _ in range(5000):
        empty(right)
        if not unsent(left):
            break
        assert unsent(left) <= held
        time.sleep(0.001)
    assert unsent(left) == 0


def test_a_closed_socket_holds_nothing(pair: Pair) -> None:
    left, _ = pair
    fill(left)
    left.close()
    assert unsent(left) == 0


@interpreted_only
def test_nothing_is_held_where_the_system_cannot_tell(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    left, _ = pair
    fill(left)
    monkeypatch.setattr("deadlined.net.sockets.TIOCOUTQ", 0)
    assert unsent(left) == 0
