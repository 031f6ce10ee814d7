"""Opening handshakes: what is a valid one, what is refused and how, and that the next client is served."""

from __future__ import annotations

import pytest

from tests.applications.running import Server
from tests.support.websocket_peer import KEY, Event, Peer, Response, agreed_deflate, frame, upgrade

from .running import get

UPGRADE = upgrade("/echo")


def answer(server: Server, request: bytes) -> Response:
    with Peer.dial(server.port) as client:
        return client.ask(request)


def changed(old: bytes, new: bytes) -> bytes:
    """Return the request with `old`, which it must contain, replaced."""
    assert old in UPGRADE
    return UPGRADE.replace(old, new)


VALID = {
    "as a browser asks": UPGRADE,
    "as Firefox asks": changed(b"Connection: Upgrade", b"Connection: keep-alive, Upgrade"),
    "in other cases": changed(b"Upgrade: websocket", b"uPGRADE: WebSocket").replace(b": Upgrade", b": uPgRaDe"),
    "fields in two lines": changed(b"Connection: Upgrade", b"Connection: keep-alive\r\nConnection: upgrade"),
    "among other protocols": changed(b"Upgrade: websocket", b"Upgrade: h2c, websocket"),
    "with a query": changed(b"/echo", b"/echo?a=b&c"),
    "a url": changed(b"/echo", b"http://a.example/echo"),
    "with an origin": changed(b"\r\n\r\n", b"\r\nOrigin: https://b.example\r\n\r\n"),
    "an unknown extension": changed(b"\r\n\r\n", b"\r\nSec-WebSocket-Extensions: x-none; a=b\r\n\r\n"),
    "a length of nothing": changed(b"\r\n\r\n", b"\r\nContent-Length: 0\r\n\r\n"),
}


@pytest.mark.parametrize("request_", VALID.values(), ids=VALID)
def test_a_valid_handshake_is_accepted(server: Server, request_: bytes) -> None:
    with Peer.dial(server.port) as client:
        assert client.ask(request_).status == 101
        client.text("a")
        assert client.event() == Event("text", b"a")


NO_KEY = f"Sec-WebSocket-Key: {KEY}\r\n".encode()
FIELD = b"Sec-WebSocket-Extensions: "

REFUSED = {
    "no key": changed(NO_KEY, b""),
    "two keys": changed(NO_KEY, NO_KEY * 2),
    "a short key": changed(KEY.encode(), b"YWJj"),
    "a key that is no base64": changed(KEY.encode(), b"!" * 24),
    "no version": changed(b"Sec-WebSocket-Version: 13\r\n", b""),
    "another version": changed(b"Version: 13", b"Version: 8"),
    "an extension that cannot be read": changed(b"\r\n\r\n", b"\r\n" + FIELD + b";;=\r\n\r\n"),
    "a subprotocol that cannot be read": changed(b"\r\n\r\n", b"\r\nSec-WebSocket-Protocol: a b\r\n\r\n"),
}


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED)
def test_an_invalid_handshake_is_refused_and_told_our_version(server: Server, request_: bytes) -> None:
    response = answer(server, request_)
    assert (response.status, response.field("sec-websocket-version")) == (400, "13")
    assert answer(server, UPGRADE).status == 101


# requests that ask for no websocket: the application answers them as HTTP
PLAIN = {
    "no upgrade": changed(b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b""),
    "an upgrade that is not for this connection": changed(b"Connection: Upgrade\r\n", b""),
    "another protocol": changed(b"Upgrade: websocket", b"Upgrade: h2c"),
    "HTTP/1.0": changed(b"HTTP/1.1", b"HTTP/1.0"),
    "another method": changed(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 0\r\n\r\n"),
}


@pytest.mark.parametrize("request_", PLAIN.values(), ids=PLAIN)
def test_what_is_no_upgrade_is_a_request(server: Server, request_: bytes) -> None:
    response = answer(server, request_)
    assert (response.status, response.body[:1]) == (200, b"[")


def test_a_head_in_pieces_and_frames_that_come_with_it(server: Server) -> None:
    with Peer.dial(server.port) as client:
        client.socket.sendall(UPGRADE[:50])
        client.socket.sendall(UPGRADE[50:-2])
        # a client need not wait for the 101
        assert client.ask(UPGRADE[-2:] + frame(1, b"early") + frame(1, b"half")[:-2]).status == 101
        assert client.event() == Event("text", b"early")
        client.send(frame(1, b"half")[-2:])
        assert client.event() == Event("text", b"half")


def test_a_handshake_after_requests_on_the_same_connection(server: Server) -> None:
    with Peer.dial(server.port) as client:
        for _ in range(3):
            assert client.ask(b"GET /?nothing HTTP/1.1\r\nHost: a\r\n\r\n").body == b"[]"
        assert client.ask(UPGRADE).status == 101
        client.text("a")
        assert client.event() == Event("text", b"a")


# offers of permessage-deflate, and what must be agreed to; None: it must be declined
OFFERS: dict[str, set[str] | None] = {
    "permessage-deflate": set(),
    "permessage-deflate; server_no_context_takeover": {"server_no_context_takeover"},
    "permessage-deflate; client_no_context_takeover": set(),
    "permessage-deflate; server_max_window_bits=10": {"server_max_window_bits"},
    'permessage-deflate; server_max_window_bits="10"': {"server_max_window_bits"},
    "permessage-deflate; client_max_window_bits=10": {"client_max_window_bits"},
    "x-webkit-deflate-frame, permessage-deflate": set(),
    "permessage-deflate; unknown, permessage-deflate": set(),
    "permessage-deflate; server_max_window_bits": None,
    "permessage-deflate; server_max_window_bits=7": None,
    "permessage-deflate; server_max_window_bits=16": None,
    "permessage-deflate; server_max_window_bits=010": None,
    "permessage-deflate; server_no_context_takeover=1": None,
    "permessage-deflate; unknown": None,
    "x-unknown": None,
}


@pytest.mark.parametrize("offer", OFFERS)
def test_compression_is_agreed_to_or_declined(server: Server, offer: str) -> None:
    with Peer.open(server.port, "/echo", offer=offer) as peer:
        if (needs := OFFERS[offer]) is None:
            assert peer.agreed is None
        else:
            assert peer.agreed is not None
            assert needs <= set(peer.agreed)
            # some clients know only what they have offered
            assert all(name in offer for name in peer.agreed)
        for number in range(3):
            peer.text(f"message {number} " * 500)
            assert peer.event() == Event("text", f"message {number} ".encode() * 500)


def test_the_smallest_window_is_declined_or_kept_to(server: Server) -> None:
    # zlib cannot compress with a window of 256 bytes
    offer = "permessage-deflate; server_max_window_bits=8"
    response = answer(server, upgrade("/echo", offer=offer))
    assert response.status == 101
    if agreed_deflate(response.fields, offer) is None:
        return
    with Peer.open(server.port, "/echo", offer=offer) as peer:
        peer.binary(bytes(range(256)) * 40)
        assert peer.event() == Event("binary", bytes(range(256)) * 40)


def test_a_parameter_twice_is_no_valid_offer(server: Server) -> None:
    offer = "permessage-deflate; server_max_window_bits=10; server_max_window_bits=11"
    response = answer(server, upgrade("/echo", offer=offer))
    assert response.status in (101, 400)
    assert response.status == 400 or agreed_deflate(response.fields, offer) is None
    assert get(server, "/?nothing") == []
