"""Quart's websockets on asyncio, uvloop and uvicorn, and those of Quart-Trio on trio: the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.applications.running import Server
from tests.support.websocket_peer import FIN, Event, Peer

from .running import SERVERS, denial, serving, told


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    factory = "for_trio" if request.param == "trio" else "for_asyncio"
    with serving(request.param, f"quart_site:{factory}", "--factory") as server:
        yield server


def test_messages_of_both_kinds_are_echoed(server: Server) -> None:
    with Peer.open(server.port, "/echo", offer="permessage-deflate") as peer:
        peer.text("κόσμε")
        assert peer.event() == Event("text", "κόσμε".encode())
        peer.binary(bytes(70_000))
        assert peer.event() == Event("binary", bytes(70_000))
        assert peer.close(4003, b"bye") == [Event("close", b"bye", 4003), FIN]


def test_json_and_parameters(server: Server) -> None:
    with Peer.open(server.port, "/json/4?a=b") as peer:
        peer.text('{"c": [1]}')
        text, *end = peer.end()
        assert json.loads(text.data) == {"number": 4, "value": {"c": [1]}, "args": {"a": "b"}}
        assert end == [Event("close", b"", 1000), FIN]


def test_a_subprotocol_is_chosen(server: Server) -> None:
    with Peer.open(server.port, "/subprotocol", "Sec-WebSocket-Protocol: first, second") as peer:
        assert (peer.response.field("sec-websocket-protocol"), peer.response.field("x-mark")) == ("second", "seen")
        assert peer.event() == Event("text", b"accepted")


def test_the_application_closes(server: Server) -> None:
    with Peer.open(server.port, "/leave") as peer:
        assert peer.end() == [Event("close", b"enough", 4002), FIN]


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [("/forbidden", [], 403), ("/nowhere", [], 404), ("/json/x", [], 404), ("/echo", ["X-Banned: 1"], 418)],
)
def test_a_refusal_is_the_page_of_the_error(server: Server, path: str, fields: list[str], status: int) -> None:
    response = denial(server, path, *fields)
    assert response.status == status
    assert response.body.startswith(b"<!doctype html>")


def test_a_denial_is_what_the_handler_returns(server: Server) -> None:
    response = denial(server, "/answered")
    assert (response.status, json.loads(response.body)) == (401, {"why": "no ticket"})
    assert response.field("x-mark") == "seen"


def test_a_failure_is_closed_by_quart(server: Server) -> None:
    with Peer.open(server.port, "/fail") as peer:
        (close, end) = peer.end()
        assert (close.kind, end) == ("close", FIN)
        assert close.code in (1000, 1011)


@pytest.mark.parametrize("vanish", [False, True])
def test_a_handler_is_cancelled_when_its_client_leaves(server: Server, vanish: bool) -> None:
    with Peer.open(server.port, "/waiting") as peer:
        if vanish:
            peer.reset()
        else:
            assert peer.close() == [Event("close", b"", 1000), FIN]
    told(server, "/trace", "cancelled")
