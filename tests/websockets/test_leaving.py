"""Clients that leave without a word, at every step: one reason each, the application is told, nothing is left, and the
next client is served."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.applications.running import Server
from tests.support.websocket_peer import ENDS, TEXT, Event, Peer, closing, descriptors, frame, upgrade

from .running import get, reason_of, shown

HALF = frame(TEXT, b"hello world")

words = (f"leaving{number}" for number in count())


@pytest.fixture(autouse=True)
def nothing_is_left(server: Server) -> Iterator[None]:
    """Check that the server has as many descriptors as before, and serves the next client."""
    with Peer.open(server.port, "/echo") as peer:
        peer.text("before")
        assert peer.event() == Event("text", b"before")
        before = descriptors(server.process.pid)
        yield
        peer.text("next")
        assert peer.event() == Event("text", b"next")
        while descriptors(server.process.pid) > before:
            time.sleep(0.01)


def begun(server: Server, word: str) -> Peer:
    peer = Peer.dial(server.port)
    peer.send(upgrade(f"/never-accept?{word}"))
    assert get(server, "/?nothing") == []
    return peer


def after(server: Server, path: str, sent: bytes) -> Peer:
    peer = Peer.open(server.port, path)
    peer.send(sent)
    return peer


STEPS: dict[str, Callable[[Server, str], Peer]] = {
    "before the accept": begun,
    "when open": lambda server, word: after(server, f"/echo?{word}", b""),
    "in a frame": lambda server, word: after(server, f"/echo?{word}", HALF[:4]),
    "in a message": lambda server, word: after(server, f"/echo?{word}", frame(TEXT, b"a", fin=False)),
    "after a message": lambda server, word: after(server, f"/echo?{word}", HALF),
    "while it is sent to": lambda server, word: after(server, f"/push?{word}", b""),
    "after its close": lambda server, word: after(server, f"/echo?{word}", closing()),
    "before it answers a close": lambda server, word: after(server, f"/close-first?{word}", b""),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_client_that_vanishes(server: Server, step: Callable[[Server, str], Peer]) -> None:
    word = next(words)
    peer = step(server, word)
    peer.reset()
    assert reason_of(server, peer) in ("client_reset", "client_closed", "done")
    assert shown(server, f"/?{word}")


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_client_that_half_closes(server: Server, step: Callable[[Server, str], Peer]) -> None:
    word = next(words)
    with step(server, word) as peer:
        peer.socket.shutdown(socket.SHUT_WR)
        if step is STEPS["before the accept"]:
            assert peer.socket.recv(1000) == b""
        else:
            assert peer.events()[-1] in ENDS
        assert reason_of(server, peer) in ("client_closed", "client_reset", "done")
    assert shown(server, f"/?{word}")
