"""FastAPI's websockets on every event loop of the command, and on uvicorn: the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.applications.running import Server
from tests.support.websocket_peer import FIN, Event, Peer

from .running import SERVERS, denial, is_uvicorn, serving, told


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(request.param, "fastapi_site:app") as server:
        yield server


def test_a_room_hears_each_of_its_members(server: Server) -> None:
    with Peer.open(server.port, "/chat/tea/ann") as ann, Peer.open(server.port, "/chat/tea/bob") as bob:
        # bob is in the room once he hears himself
        bob.text("hello")
        assert bob.event() == Event("text", b"bob (session of bob): hello")
        assert ann.event() == Event("text", b"bob (session of bob): hello")
        ann.text("hi")
        assert ann.event() == bob.event() == Event("text", b"ann (session of ann): hi")
        assert bob.close() == [Event("close", b"", 1000), FIN]
        assert ann.event() == Event("text", b"bob left")
    told(server, "/trace", "bob: closed")
    told(server, "/trace", "ann: closed")


def test_a_member_that_vanishes_has_left(server: Server) -> None:
    with Peer.open(server.port, "/chat/coffee/ann") as ann, Peer.open(server.port, "/chat/coffee/eve") as eve:
        eve.text("hello")
        assert ann.event() == Event("text", b"eve (session of eve): hello")
        eve.reset()
        assert ann.event() == Event("text", b"eve left")
    told(server, "/trace", "eve: closed")


@pytest.mark.parametrize(
    ("path", "fields", "answer"),
    [
        ("/items/5?token=t", [], {"number": 5, "limit": 5, "ticket": "t"}),
        ("/items/5?limit=10", ["Cookie: session=s"], {"number": 5, "limit": 10, "ticket": "s"}),
    ],
)
def test_parameters_are_injected(server: Server, path: str, fields: list[str], answer: object) -> None:
    with Peer.open(server.port, path, *fields) as peer:
        text, *end = peer.end()
        assert json.loads(text.data) == answer
        assert end == [Event("close", b"", 1000), FIN]


@pytest.mark.parametrize("path", ["/items/5", "/items/five?token=t", "/items/5?token=t&limit=11", "/nowhere"])
def test_a_refusal_of_a_dependency_or_of_a_parameter_is_403(server: Server, path: str) -> None:
    assert denial(server, path).status == 403


def test_an_exception_closes_with_its_code(server: Server) -> None:
    with Peer.open(server.port, "/strict") as peer:
        peer.text('{"word": "please"}')
        assert peer.end() == [Event("text", b"thank you"), Event("close", b"", 1000), FIN]
    with Peer.open(server.port, "/strict") as peer:
        peer.text('{"word": "now"}')
        assert peer.end() == [Event("close", b"say please", 4100), FIN]


def test_a_handler_of_the_application_answers_its_exception(server: Server) -> None:
    with Peer.open(server.port, "/order") as peer:
        assert peer.end() == [Event("close", b"no tea", 4200), FIN]


def test_a_failure_closes_with_1011_and_the_next_client_is_served(server: Server) -> None:
    with Peer.open(server.port, "/fail") as peer:
        codes = [event.code for event in peer.end() if event.kind == "close"]
        assert codes == ([] if is_uvicorn(server) else [1011])
    with Peer.open(server.port, "/order") as peer:
        assert peer.event().code == 4200
