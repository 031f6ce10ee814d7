"""Litestar's websockets on every event loop of the command, and on uvicorn: the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.applications.running import Server
from tests.support.websocket_peer import FIN, Event, Peer

from .running import SERVERS, denial, serving, told

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(request.param, "litestar_site:app") as server:
        yield server


def test_bytes_are_echoed_and_the_close_is_told(server: Server) -> None:
    with Peer.open(server.port, "/echo", offer="permessage-deflate") as peer:
        peer.binary(b"abc" * 10_000)
        assert peer.event() == Event("binary", b"ABC" * 10_000)
        assert peer.close(4003, b"bye") == [Event("close", b"bye", 4003), FIN]
    told(server, "/trace", "left with 4003")


def test_a_listener_gets_data_and_parameters(server: Server) -> None:
    with Peer.open(server.port, "/orders/tea?limit=6") as peer:
        for count, ordered in ((3, 3), (7, 6)):
            peer.text(json.dumps({"name": "ann", "count": count}))
            assert json.loads(peer.event().data) == {"shop": "tea", "ordered": ordered, "name": "ann"}


def test_a_listener_is_told_of_each_step(server: Server) -> None:
    with Peer.open(server.port, "/counter") as peer:
        peer.text("hello")
        assert peer.event() == Event("text", b"5")
        assert peer.close() == [Event("close", b"", 1000), FIN]
    told(server, "/trace", "accepted")
    told(server, "/trace", "disconnected")


def test_a_stream_is_sent_and_closed(server: Server) -> None:
    with Peer.open(server.port, "/count/50") as peer:
        *texts, close, end = peer.end()
        assert [int(text.data) for text in texts] == list(range(50))
        assert (close, end) == (Event("close", b"", 1000), FIN)


def test_a_guard_lets_those_with_a_ticket_in(server: Server) -> None:
    fields = ("X-Ticket: valid", "Sec-WebSocket-Protocol: first, second")
    with Peer.open(server.port, "/guarded", *fields) as peer:
        assert (peer.response.field("sec-websocket-protocol"), peer.response.field("x-mark")) == ("second", "seen")
        assert peer.end() == [Event("text", b'{"held":"held"}'), Event("close", b"enough", 4002), FIN]


@pytest.mark.parametrize("path", ["/guarded", "/orders/tea?limit=11", "/nowhere"])
def test_a_refusal_is_403(server: Server, path: str) -> None:
    assert denial(server, path).status == 403


@pytest.mark.parametrize(("path", "code", "reason"), [("/strict", 4100, b"say please"), ("/fail", 4500, None)])
def test_an_exception_closes_with_its_code(server: Server, path: str, code: int, reason: bytes | None) -> None:
    with Peer.open(server.port, path) as peer:
        close, end = peer.end()
        assert (close.kind, close.code, end) == ("close", code, FIN)
        assert reason is None or close.data == reason
