"""Applications that use a websocket wrongly: the right close code or response, and the next client is served."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.applications.running import Server
from tests.support.websocket_peer import FIN, Event, Peer, upgrade

from .running import denial, get, serving, told

words = (f"word{number}" for number in count())


@pytest.fixture(scope="module")
def server(loop: str) -> Iterator[Server]:
    """A server whose log may have the errors of applications."""
    with serving(loop, "plain:app", failing=True) as server:
        yield server


@pytest.fixture(autouse=True)
def next_client_is_served(server: Server) -> Iterator[None]:
    yield
    with Peer.open(server.port, "/echo") as peer:
        peer.text("next")
        assert peer.event() == Event("text", b"next")
        assert peer.close() == [Event("close", b"", 1000), FIN]


@pytest.mark.parametrize("path", ["/accept-twice", "/raise-after", "/unknown", "/empty"])
def test_a_failure_closes_with_1011(server: Server, path: str) -> None:
    with Peer.open(server.port, path) as peer:
        close, end = peer.end()
        assert (close.kind, close.code, end) == ("close", 1011, FIN)


@pytest.mark.parametrize("path", ["/raise-before", "/return-before", "/send-before", "/nowhere"])
def test_a_failure_before_the_accept_is_500(server: Server, path: str) -> None:
    assert denial(server, path).status == 500


def test_a_subprotocol_that_was_not_offered_is_500(server: Server) -> None:
    assert denial(server, "/bad-subprotocol", "Sec-WebSocket-Protocol: a, b").status == 500


def test_an_application_that_returns_closes_with_1000(server: Server) -> None:
    with Peer.open(server.port, "/return-after") as peer:
        assert peer.end() == [Event("close", b"", 1000), FIN]


def test_a_failure_after_the_end_is_no_concern_of_the_client(server: Server) -> None:
    with Peer.open(server.port, "/raise-in-the-end") as peer:
        assert peer.close(4000, b"bye") == [Event("close", b"bye", 4000), FIN]


def test_sending_after_the_close_is_an_error_of_the_application(server: Server) -> None:
    word = next(words)
    with Peer.open(server.port, f"/send-after?{word}") as peer:
        assert peer.end() == [Event("close", b"", 4000), FIN]
    told(server, f"/?{word}", ["send", False])
    told(server, f"/?{word}", ["close", False])


def test_sending_after_the_client_has_left_is_an_oserror(server: Server) -> None:
    word = next(words)
    with Peer.open(server.port, f"/send-to-nobody?{word}") as peer:
        assert peer.close() == [Event("close", b"", 1000), FIN]
    everything = told(server, f"/?{word}", ["websocket.disconnect"] * 3)
    assert everything == ["OSError", ["websocket.disconnect"] * 3]


def test_codes_that_are_not_allowed_are_refused_and_a_close_is_still_possible(server: Server) -> None:
    word = next(words)
    with Peer.open(server.port, f"/bad-code?{word}") as peer:
        assert peer.end() == [Event("close", b"at last", 4000), FIN]
    refused = [code for code, is_os_error in get(server, f"/?{word}") if not is_os_error]
    assert refused == [0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65536, -1]


def test_a_reason_that_is_too_long_is_refused_and_the_longest_is_sent(server: Server) -> None:
    word = next(words)
    with Peer.open(server.port, f"/long-reason?{word}") as peer:
        assert peer.end() == [Event("close", ("é" * 61 + "e").encode(), 4000), FIN]
    assert get(server, f"/?{word}") == [False]


@pytest.mark.parametrize("vanish", [False, True])
def test_a_client_that_leaves_before_the_accept_is_told(server: Server, vanish: bool) -> None:
    word = next(words)
    with Peer.dial(server.port) as client:
        client.send(upgrade(f"/never-accept?{word}"))
        # let the application have it: what else is served meanwhile shows that it has
        assert get(server, "/?nothing") == []
        if vanish:
            client.reset()
    told(server, f"/?{word}", "websocket.disconnect")


def test_the_closing_handshake_of_the_server(server: Server) -> None:
    word = next(words)
    with Peer.open(server.port, f"/close-first?{word}") as peer:
        assert peer.event() == Event("close", b"first", 4000)
        # what comes before the answer is not received any more
        peer.text("too late")
        assert peer.close(4000, b"first") == [FIN]
    told(server, f"/?{word}", ["websocket.disconnect", 4000, "first"])
