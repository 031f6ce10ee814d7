"""Clients that stall at every step: each connection ends with the right code and one reason, the application is told,
and the next client is served. The server's times are short, so that nobody waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.applications.running import Server
from tests.support.websocket_peer import (
    ENDS,
    FIN,
    RESET,
    TEXT,
    Event,
    Peer,
    closing,
    frame,
    upgrade,
)

from .running import reason_of, serving, shown

SHORT = (
    *("--read-header=0.3s", "--body-grace=0.5s", "--write-grace=0.5s", "--write-min-rate=1M", "--handler=0.5s"),
    *("--ws-ping=0.2s", "--ws-pong=0.2s", "--ws-close=0.3s"),
)

words = (f"stall{number}" for number in count())


@pytest.fixture(scope="module")
def server(loop: str) -> Iterator[Server]:
    with serving(loop, "plain:app", *SHORT, failing=True) as server:
        yield server


@pytest.fixture(autouse=True)
def next_client_is_served(server: Server) -> Iterator[None]:
    yield
    with Peer.open(server.port, "/echo") as peer:
        peer.text("next")
        assert next_of(peer) == Event("text", b"next")


def next_of(peer: Peer) -> Event:
    """Return what comes next, but for pings, which are not answered."""
    while (event := peer.event()).kind == "ping":
        pass
    return event


def all_of(peer: Peer) -> list[Event]:
    """Return all that comes, but for pings, which are not answered."""
    return [event for event in peer.events() if event.kind != "ping"]


# stalls

HALF = frame(TEXT, b"hello world")


@pytest.mark.parametrize("sent", [b"", upgrade("/echo")[:20], upgrade("/echo")[:-2]], ids=["nothing", "a line", "most"])
def test_a_handshake_that_stalls(server: Server, sent: bytes) -> None:
    with Peer.dial(server.port) as peer:
        peer.send(sent)
        assert peer.socket.recv(1000)[:12] in (b"", b"HTTP/1.1 408")
    assert reason_of(server, peer) == "header_timeout"


def test_an_application_that_never_accepts_is_ended_by_its_deadline(server: Server) -> None:
    with Peer.dial(server.port) as peer:
        assert peer.ask(upgrade("/hang")).status == 504
    assert reason_of(server, peer) == "handler_timeout"


def test_silence_is_pinged_and_then_closed(server: Server) -> None:
    word = next(words)
    with Peer.open(server.port, f"/echo?{word}") as peer:
        ping, *rest = peer.events()
        assert ping.kind == "ping"
        assert [event.code for event in rest if event.kind == "close"] in ([1011], [])
    assert reason_of(server, peer) == "pong_timeout"
    assert shown(server, f"/?{word}")[0][1] in (1006, 1011)


@pytest.mark.parametrize("answer", [lambda ping: frame(10, ping), lambda _: frame(10), lambda _: frame(TEXT, b"a")])
def test_a_client_that_gives_a_sign_of_life_stays(server: Server, answer: Callable[[bytes], bytes]) -> None:
    with Peer.open(server.port, "/echo") as peer:
        pings = 0
        while pings < 3:
            event = peer.event()
            assert event.kind in ("ping", "text"), event
            if event.kind == "ping":
                pings += 1
                peer.send(answer(event.data))
        peer.send(closing(4000, b"bye"))
        assert [event for event in all_of(peer) if event.kind != "text"] == [Event("close", b"bye", 4000), FIN]


PIECES = {
    "half of a frame's head": HALF[:1],
    "half of a length": frame(TEXT, bytes(300))[:3],
    "half of a mask": HALF[:4],
    "half of a payload": HALF[:-3],
    "half of a ping": frame(9, b"hello")[:-1],
    "a fragment": frame(TEXT, b"a", fin=False),
}


@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES)
def test_a_message_that_stalls(server: Server, piece: bytes) -> None:
    word = next(words)
    with Peer.open(server.port, f"/echo?{word}") as peer:
        peer.send(piece)
        assert all_of(peer)[-1] in ENDS
    # the later pong or the message: whichever is due first
    assert reason_of(server, peer) in ("body_rate", "pong_timeout")
    assert shown(server, f"/?{word}")[0][0] == "disconnect"


def test_a_message_that_trickles_is_below_the_least_rate(server: Server) -> None:
    with Peer.open(server.port, "/echo") as peer:
        peer.socket.settimeout(0.05)
        # a byte per 50 ms, and none of them is silence
        for byte in frame(TEXT, bytes(100_000))[:2000]:
            peer.send(bytes([byte]))
            try:
                if next_of(peer).kind != "ping":
                    break
            except TimeoutError:
                continue
        peer.socket.settimeout(30)
    assert reason_of(server, peer) == "body_rate"


def test_a_reader_that_stalls_is_reset_and_its_application_told(server: Server) -> None:
    word = next(words)
    with Peer.open(server.port, f"/push?{word}", receive_buffer=4096) as peer:
        assert reason_of(server, peer) == "write_timeout"
        everything = shown(server, f"/?{word}", lambda seen: len(seen) == 2)
        assert everything == ["send failed", ["websocket.disconnect", 1006]]
        assert peer.events()[-1] == RESET


def test_a_close_of_the_server_that_is_never_answered(server: Server) -> None:
    word = next(words)
    with Peer.open(server.port, f"/close-first?{word}") as peer:
        assert all_of(peer) in ([Event("close", b"first", 4000), end] for end in ENDS)
    assert reason_of(server, peer) == "close_timeout"


def test_a_close_of_the_server_that_is_answered_by_messages(server: Server) -> None:
    with Peer.open(server.port, "/close-first") as peer:
        assert peer.event() == Event("close", b"first", 4000)
        peer.socket.settimeout(0.02)
        ended = False
        while not ended:
            peer.send(frame(TEXT, b"not yet"))
            try:
                ended = peer.event() in ENDS
            except TimeoutError:
                continue
    assert reason_of(server, peer) == "close_timeout"
