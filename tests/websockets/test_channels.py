"""Consumers of Channels on asyncio, uvloop and uvicorn: the same answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.applications.running import Server
from tests.support.websocket_peer import FIN, Event, Peer

from .running import ON_ASYNCIO, denial, get, is_uvicorn, reason_of, serving, told

pytestmark = pytest.mark.thorough

ORIGIN = "Origin: http://a.example"


@pytest.fixture(scope="module", params=ON_ASYNCIO)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(request.param, "channels_site:app") as server:
        yield server


def test_a_plain_consumer_echoes_from_its_thread(server: Server) -> None:
    with Peer.open(server.port, "/echo", ORIGIN) as peer:
        peer.text("é")
        assert peer.event() == Event("text", "é".encode())
        peer.binary(b"\x00\xff")
        assert peer.event() == Event("binary", b"\x00\xff")
        assert peer.close(4003, b"bye") == [Event("close", b"bye", 4003), FIN]
    told(server, "/told", ["echo", 4003])


def test_a_room_hears_by_the_channel_layer(server: Server) -> None:
    with (
        Peer.open(server.port, "/rooms/tea", ORIGIN, "Sec-WebSocket-Protocol: json") as ann,
        Peer.open(server.port, "/rooms/tea", ORIGIN) as bob,
        Peer.open(server.port, "/rooms/coffee", ORIGIN) as eve,
    ):
        assert ann.response.field("sec-websocket-protocol") == "json"
        ann.text('"hello"')
        assert ann.event() == bob.event() == Event("text", b'{"told": "hello"}')
        eve.text('"nobody"')
        assert eve.event() == Event("text", b'{"told": "nobody"}')
        bob.text('"leave"')
        assert bob.end() == [Event("close", b"left", 4123), FIN]
        told(server, "/told", ["room", 4123])
        ann.text('"alone"')
        assert ann.event() == Event("text", b'{"told": "alone"}')
        ann.reset()
    told(server, "/told", ["room", 1005 if is_uvicorn(server) else 1006])


@pytest.mark.parametrize(
    ("path", "fields"),
    [("/denied", [ORIGIN]), ("/refused", [ORIGIN]), ("/echo", ["Origin: http://b.example"]), ("/echo", [])],
)
def test_a_refusal_is_403(server: Server, path: str, fields: list[str]) -> None:
    assert denial(server, path, *fields).status == 403


def test_a_failure_of_a_consumer_closes_with_1011(server: Server) -> None:
    with Peer.open(server.port, "/failing", ORIGIN) as peer:
        peer.text("a")
        codes = [event.code for event in peer.end() if event.kind == "close"]
        assert codes == ([] if is_uvicorn(server) else [1011])


# uvicorn raises in `send`, and the consumer is not told
@pytest.mark.parametrize("server", ["asyncio", "uvloop"], indirect=True)
def test_a_consumer_that_sends_to_a_client_that_has_left_is_told_of_that(server: Server) -> None:
    with Peer.open(server.port, "/slow", ORIGIN) as peer:
        peer.text("a")
        assert peer.event() == Event("text", b"begun")
        peer.reset()
        assert reason_of(server, peer) == "client_reset"
    assert get(server, "/answer") == []
    told(server, "/told", ["slow", 1006])


def test_a_path_without_a_consumer_is_500(server: Server) -> None:
    # Channels raises ValueError
    assert denial(server, "/meant-to-fail", ORIGIN).status == 500
