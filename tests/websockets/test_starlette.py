"""Starlette's websockets on every event loop of the command, and on uvicorn: the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.applications.running import Server
from tests.support.websocket_peer import FIN, PING, TEXT, Event, Peer, frame, upgrade

from .running import SERVERS, denial, get, is_uvicorn, serving, shown, told


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(request.param, "starlette_site:app") as server:
        yield server


@pytest.mark.parametrize("offer", ["", "permessage-deflate; client_max_window_bits"])
def test_texts_are_echoed_and_a_close_is_told(server: Server, offer: str) -> None:
    with Peer.open(server.port, "/echo", offer=offer) as peer:
        assert (peer.deflate is not None) == bool(offer)
        for text in ("", "hello", "κόσμε", "x" * 100_000):
            peer.text(text)
            assert peer.event() == Event("text", text.encode())
        code = 4003 if offer else 1000
        assert peer.close(code, "ça suffit".encode()) == [Event("close", "ça suffit".encode(), code), FIN]
    told(server, "/told", [code, "ça suffit"])


def test_a_close_right_after_a_large_answer_is_told_as_it_is(server: Server) -> None:
    # Starlette calls an answer that could not be sent a close with 1006
    before = len(get(server, "/told"))
    for _ in range(30):
        with Peer.open(server.port, "/echo") as peer:
            peer.text("x" * 100_000)
            assert peer.event().kind == "text"
            assert peer.close(4000, b"read")[-1] == FIN
    heard = shown(server, "/told", lambda heard: len(heard) >= before + 30)
    assert heard[before:] == [[4000, "read"]] * 30


def test_a_client_that_vanishes_is_told_as_1006(server: Server) -> None:
    with Peer.open(server.port, "/echo") as peer:
        peer.text("a")
        assert peer.event() == Event("text", b"a")
        peer.reset()
    # uvicorn says what it says of a close without a code
    told(server, "/told", [1005 if is_uvicorn(server) else 1006, ""])


def test_a_close_without_a_code_is_told_as_1005(server: Server) -> None:
    with Peer.open(server.port, "/echo") as peer:
        *_, end = peer.close(None)
        assert end == FIN
    told(server, "/told", [1005, ""])


def test_json_goes_both_ways_as_text_and_as_bytes(server: Server) -> None:
    with Peer.open(server.port, "/objects") as peer:
        for value in ({"a": [1, None, "é"]}, "plain", 5):
            peer.text(json.dumps(value))
            text, data = peer.event(), peer.event()
            assert (text.kind, data.kind) == ("text", "binary")
            assert json.loads(text.data) == json.loads(data.data) == value


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["Sec-WebSocket-Protocol: first, second"], "second"),
        (["Sec-WebSocket-Protocol: first", "Sec-WebSocket-Protocol: second"], "second"),
        (["Sec-WebSocket-Protocol: first"], None),
        ([], None),
    ],
)
def test_a_subprotocol_is_chosen_and_fields_are_sent(server: Server, offered: list[str], chosen: str | None) -> None:
    with Peer.open(server.port, "/subprotocol", *offered) as peer:
        assert peer.response.field("sec-websocket-protocol") == chosen
        assert (peer.response.field("x-mark"), peer.response.field("set-cookie")) == ("seen", "visits=1")
        names = [name for field in offered for name in field.partition(": ")[2].split(", ")]
        assert json.loads(peer.event().data) == names
        assert peer.end() == [Event("close", b"", 1000), FIN]


def test_a_close_before_the_accept_is_403(server: Server) -> None:
    assert denial(server, "/refuse").status == 403
    assert denial(server, "/nowhere").status == 403


def test_a_denial_is_the_response_of_the_application(server: Server) -> None:
    response = denial(server, "/deny")
    assert (response.status, json.loads(response.body)) == (401, {"why": "no ticket"})
    assert response.field("www-authenticate") == "Basic"
    assert response.field("content-type") == "application/json"


def test_a_middleware_refuses_by_a_response(server: Server) -> None:
    with Peer.dial(server.port) as client:
        response = client.ask(upgrade("/echo", host="b.example"))
    assert (response.status, response.body) == (400, b"Invalid host header")


def test_the_application_closes_with_a_code_and_a_reason(server: Server) -> None:
    with Peer.open(server.port, "/leave") as peer:
        assert peer.end() == [Event("text", b"goodbye"), Event("close", "café fermé".encode(), 4002), FIN]


def test_the_scope_is_what_the_client_has_asked_for(server: Server) -> None:
    fields = ("User-Agent: x", "Cookie: a=1; b=2")
    with Peer.open(server.port, "/mounted/rooms/caf%C3%A9?a=%20b&c=", *fields) as peer:
        assert json.loads(peer.event().data) == {
            "room": "café",
            "query": {"a": " b", "c": ""},
            "cookies": {"a": "1", "b": "2"},
            "agent": "x",
            "host": "a.example",
            "scheme": "ws",
            "path": "/mounted/rooms/café",
            "client": "127.0.0.1",
            "version": "1.1",
            "state": 7,
        }


def test_an_endpoint_is_told_of_each_step(server: Server) -> None:
    with Peer.open(server.port, "/counter") as peer:
        assert peer.event() == Event("text", b"welcome")
        peer.binary(bytes(70_000))
        assert peer.event() == Event("binary", b"70000")
        # a text where the endpoint wants bytes: Starlette closes with 1003
        peer.text("a")
        assert peer.end() == [Event("close", b"", 1003), FIN]


@pytest.mark.parametrize(
    "end",
    [lambda peer: peer.close(4010), lambda peer: peer.reset(), lambda peer: peer.socket.close()],
    ids=["close", "reset", "fin"],
)
def test_an_endpoint_is_told_that_its_client_has_left(server: Server, end: object) -> None:
    before = len(get(server, "/told"))
    with Peer.open(server.port, "/counter") as peer:
        assert peer.event() == Event("text", b"welcome")
        end(peer)  # type: ignore[operator]
    code, what = shown(server, "/told", lambda heard: len(heard) > before)[-1]
    assert what == "of an endpoint"
    assert code in (4010, 1005, 1006)


def test_a_failure_closes_with_1011(server: Server) -> None:
    with Peer.open(server.port, "/fail") as peer:
        text, *close, end = peer.end()
        assert text == Event("text", b"begun")
        # uvicorn hangs up without a close frame
        assert close == ([] if is_uvicorn(server) else [Event("close", close[0].data, 1011)])
        assert is_uvicorn(server) or end == FIN


def test_a_failure_before_the_accept_is_500(server: Server) -> None:
    assert denial(server, "/fail-early").status == 500


def test_the_same_site_answers_requests(server: Server) -> None:
    with Peer.dial(server.port) as client:
        assert client.ask(b"GET /page HTTP/1.1\r\nHost: a.example\r\n\r\n").body == b"a page"
        # the same connection becomes a websocket
        assert client.ask(upgrade("/page/live")).status == 101
        client.text("a")
        assert client.event() == Event("text", b"a")


def test_messages_in_fragments_and_pings_between_them(server: Server) -> None:
    with Peer.open(server.port, "/echo") as peer:
        peer.send(frame(TEXT, b"ca", fin=False) + frame(PING, b"p") + frame(0, b"f\xc3", fin=False) + frame(0, b"\xa9"))
        assert [peer.event(), peer.event()] == [Event("pong", b"p"), Event("text", "café".encode())]
