"""The same site on uvicorn and on every loop of the command: the same answers, and the same scopes.

What differs on purpose stands in the table DIFFERENCES with its reason, and in docs/asgi.md.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import h11
import pytest

from tests.applications.running import LOOPS, Server, deadlined, uvicorn

# fields that servers write in their own name, and how they tell where a body ends
OWN = {"date", "server", "keep-alive", "transfer-encoding"}

# names only what is a server's own
KEPT = ("connection", "keep-alive")

CLOSE = b"connection: close\r\n"

UPGRADE = (
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)


@dataclass(frozen=True)
class Answer:
    """A response as a client reads it. `whole`: its end came before the connection's."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: str
    whole: bool = True

    @property
    def length(self) -> str | None:
        return dict(self.headers).get("content-length")

    def without_length(self) -> Answer:
        return replace(self, headers=tuple(field for field in self.headers if field[0] != "content-length"))


class Browser:
    """A connection that reads responses with h11."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._rest = b""

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: bytes) -> Answer:
        """Return the final response."""
        self._socket.sendall(request)
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method=request.partition(b" ")[0], target="/", headers=[("host", "a")]))
        reader.send(h11.EndOfMessage())
        head: h11.Response | None = None
        body = bytearray()
        whole = True
        while True:
            try:
                event = reader.next_event()
            except h11.RemoteProtocolError:
                whole = False
                break
            if event is h11.NEED_DATA:
                reader.receive_data(self._receive())
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                break
        self._rest = reader.trailing_data[0]
        assert head is not None, request
        fields = sorted((name.decode(), value.decode("latin-1")) for name, value in head.headers)
        kept = tuple(field for field in fields if field[0] not in OWN and field != KEPT)
        return Answer(head.status_code, kept, bytes(body).decode("latin-1"), whole)

    def _receive(self) -> bytes:
        rest, self._rest = self._rest, b""
        try:
            return rest or self._socket.recv(1 << 20)
        except ConnectionResetError:
            return b""


def answers(server: Server, *requests: bytes) -> list[Answer]:
    """Return the answers to requests that follow each other on one connection."""
    browser = Browser(server.port)
    try:
        return [browser.ask(request) for request in requests]
    finally:
        browser.close()


def get(path: str, *fields: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: a.example", *fields]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def post(path: str, body: bytes, *fields: str, method: str = "POST") -> bytes:
    return get(path, f"content-length: {len(body)}", *fields, method=method) + body


def chunked(path: str, *pieces: bytes) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))
    return get(path, "transfer-encoding: chunked", method="POST") + body


JSON = "content-type: application/json"
TEA = b'{"name": "tea", "price": 2}'

# requests that follow each other on one connection
SAME: dict[str, list[bytes]] = {
    "methods": [get("/raw/echo", method=name) for name in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")],
    "head": [get("/raw/headers", method="HEAD"), get("/raw/big", method="HEAD"), get("/threaded", method="HEAD")],
    "bodies": [post("/raw/echo", b""), post("/raw/echo", b"abc"), post("/raw/echo", bytes(300_000))],
    "chunked bodies": [
        chunked("/raw/echo"),
        chunked("/raw/echo", b"abc", b"defg"),
        chunked("/raw/echo", b"x" * 99999),
    ],
    "messages": [get("/raw/messages"), post("/raw/messages", b"abc"), chunked("/raw/messages", b"abc", b"d")],
    "continue": [get("/raw/echo", "expect: 100-continue", "content-length: 3", method="POST") + b"abc"],
    "an unread body": [post("/raw/unread", b"abc"), chunked("/raw/unread", b"abc"), get("/raw/unread")],
    "big responses": [get("/raw/big"), get("/raw/pieces"), get("/raw/big")],
    "headers of all kinds": [get("/raw/headers"), get("/raw/tuples")],
    "statuses": [get("/raw/no-content"), get("/raw/not-modified"), get("/raw/odd-status"), get("/raw/no-content")],
    "an end that the application wants": [get("/raw/closing")],
    "an end that the client wants": [get("/raw/echo", "connection: close")],
    "404 and 405": [get("/nowhere"), get("/items/1", method="PATCH"), get("/threaded", method="POST")],
    "422": [
        post("/items", b"{}", JSON),
        post("/items", b"{", JSON),
        post("/items", TEA.replace(b"2", b"-2"), JSON),
        get("/threaded?size=many"),
        get("/items/one"),
    ],
    "cookies": [get("/whoami", "authorization: Basic YTpi", "cookie: visits=3; a=b", "user-agent: x")],
    "authentication": [get("/whoami"), get("/whoami", "authorization: Basic !")],
    "redirects": [get("/old"), post("/items/", TEA, JSON), get("/trace/")],
    "an item's life": [
        post("/items", TEA, JSON),
        get("/items/1?fields=name"),
        post("/items/1", TEA, JSON, method="PUT"),
        get("/items/1", method="DELETE"),
        get("/items/1"),
    ],
    "documents": [get("/docs"), get("/openapi.json"), get("/redoc")],
    "cross origin": [get("/threaded", "origin: https://shop.example"), get("/threaded", "origin: https://x.example")],
    "a stream": [get("/numbers?count=300"), get("/numbers?count=0")],
    "an error that a handler answers": [get("/order/sold-out"), get("/trace?until=session+closed")],
    "a failure of an endpoint": [get("/fail")],
    "a failure in a thread": [get("/fail/threaded")],
    "a failure of an answer": [get("/fail/answer")],
    "failures midway": [get("/raw/fail/midway")],
    "an incomplete response": [get("/raw/incomplete")],
    "trailing tasks": [get("/raw/trailing"), get("/raw/finished"), get("/raw/after-the-end"), get("/raw/finished")],
    "background tasks": [get("/mail", method="POST"), get("/mail"), get("/trace?until=sent")],
}

# one request each, whose scopes are compared
SCOPES: dict[str, bytes] = {
    "plain": get("/raw/scope"),
    "a query": get("/raw/scope?a=%20b&c=%C3%A9&&d=?&e=/"),
    "an empty query": get("/raw/scope?"),
    "percent signs": get("/raw/caf%C3%A9%2Fau%20lait/x"),
    "percent signs of no character": get("/raw/100%25%zz%"),
    "slashes": get("/raw//twice//"),
    "dots": get("/raw/a/../b/./c"),
    "odd characters": get("/raw/a;b=c,d@e:f!g$h&i'(j)*k+l=m~n|o"),
    "a fragment's sign in percents": get("/raw/a%23b"),
    "repeated fields": get("/raw/scope", "X-One: 1", "x-ONE: 2", "cookie: a=1", "Cookie: b=2"),
    "odd fields": get("/raw/scope", "x-empty:", "x-spaces:   a  b", "x-latin: é", "x_under: 1"),
    "a long field": get("/raw/scope", "x-long: " + "a" * 9000),
    "many fields": get("/raw/scope", *(f"x-{number}: {number}" for number in range(80))),
    "a body": post("/raw/scope", b"abc", "content-type: text/plain"),
    "a chunked body": chunked("/raw/scope", b"abc", b"de"),
    "other methods": get("/raw/scope", method="PROPFIND"),
    "a url": get("http://a.example/raw/scope?x"),
    "another host": get("/raw/scope").replace(b"a.example", b"shop.example:8080"),
    "a host without a name": get("/raw/scope").replace(b"a.example", b""),
    "an upgrade": get("/raw/scope", "connection: upgrade", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__"),
}  # fmt: skip


@pytest.fixture(scope="module", params=LOOPS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with deadlined("parity_site:app", request.param, lifespan=False) as server:
        yield server


@pytest.fixture(scope="module")
def peer(server: Server) -> Iterator[Server]:
    """uvicorn, anew for each loop: the sites of both have the same past."""
    with uvicorn("parity_site:app", "--http=httptools") as server:
        yield server


@pytest.mark.parametrize("requests", SAME.values(), ids=SAME)
def test_requests_get_the_same_answers(server: Server, peer: Server, requests: list[bytes]) -> None:
    ours, theirs = answers(server, *requests), answers(peer, *requests)
    assert [answer.without_length() for answer in ours] == [answer.without_length() for answer in theirs]
    # uvicorn sends in chunks what the application has not announced
    assert all(our.length == their.length for our, their in zip(ours, theirs, strict=True) if their.length)


def scope_of(server: Server, request: bytes) -> dict[str, Any]:
    """Return the scope that the application has seen, with its body and the types of its values."""
    (answer,) = answers(server, request)
    assert answer.status == 200
    seen: dict[str, Any] = json.loads(answer.body)
    return seen


def comparable(server: Server, request: bytes) -> dict[str, Any]:
    """Return the scope without what differs, which another test shows, and without ports."""
    seen = scope_of(server, request)
    scope, types = seen["scope"], seen["types"]
    scope["asgi"].pop("spec_version")
    host, port = scope["client"]["tuple"]
    assert isinstance(port, int)
    scope["client"] = host
    assert scope.pop("server") == {"tuple": ["127.0.0.1", server.port]}
    for shown in (scope, types):
        shown.pop("extensions", None)
    return seen


@pytest.mark.parametrize("request_", SCOPES.values(), ids=SCOPES)
def test_the_application_sees_the_same_scope(server: Server, peer: Server, request_: bytes) -> None:
    assert comparable(server, request_) == comparable(peer, request_)


def test_the_loop_is_the_one_that_was_asked_for(server: Server, request: pytest.FixtureRequest) -> None:
    (answer,) = answers(server, get("/raw/loop"))
    assert answer.body == re.sub(r".*\[(\w+).*", r"\1", request.node.name)


# what differs, and why


def test_only_our_scope_has_an_extension_and_the_newer_version(server: Server, peer: Server) -> None:
    # 2.4: a send after the disconnect raises OSError
    ours, theirs = (scope_of(each, get("/raw/scope"))["scope"] for each in (server, peer))
    assert (ours["asgi"]["spec_version"], theirs["asgi"]["spec_version"]) == ("2.5", "2.3")
    assert (list(ours["extensions"]), "extensions" in theirs) == (["deadlined"], False)


def test_we_do_not_believe_what_a_client_says_of_proxies(server: Server, peer: Server) -> None:
    # uvicorn does by default if the client is on the same host
    request = get("/raw/scope", "x-forwarded-for: 192.0.2.7", "x-forwarded-proto: https")
    ours, theirs = (scope_of(each, request)["scope"] for each in (server, peer))
    assert (ours["client"]["tuple"][0], ours["scheme"]) == ("127.0.0.1", "http")
    assert (theirs["client"]["tuple"][0], theirs["scheme"]) == ("192.0.2.7", "https")


def test_behind_a_proxy_that_is_believed_a_websocket_has_the_same_scheme(peer: Server) -> None:
    requests = [get("/", *UPGRADE, f"x-forwarded-proto: {told}") for told in ("https", "http")]
    with deadlined("parity_site:app", "asyncio", "--trusted-proxies=127.0.0.1", lifespan=False) as server:
        for each in (server, peer):
            assert [answers(each, request)[0].body for request in requests] == ["wss", "ws"]


def test_spaces_after_a_value_are_no_part_of_it(server: Server, peer: Server) -> None:
    # RFC 9112, 5: they are excluded; httptools keeps them
    request = get("/raw/scope", "x-spaces: a  ")
    seen = [scope_of(each, request)["scope"]["headers"][-1]["tuple"][1]["bytes"] for each in (server, peer)]
    assert seen == ["a", "a  "]


@pytest.mark.parametrize("path", ["/raw/fail", "/raw/silent"])
def test_our_own_500_says_where_to_look_and_closes(server: Server, peer: Server, path: str) -> None:
    ours, theirs = (answers(each, get(path))[0] for each in (server, peer))
    assert (ours.status, theirs.status) == (500, 500)
    assert "its log says why" in ours.body
    assert theirs.body == "Internal Server Error"
    assert json.loads(ours.body)["reason"] == "server_error"
    for answer, kind in ((ours, "application/problem+json"), (theirs, "text/plain; charset=utf-8")):
        assert {("connection", "close"), ("content-type", kind)} <= set(answer.headers)


def test_a_failure_before_any_body_is_still_a_500(server: Server, peer: Server) -> None:
    # our head waits for the first piece of the body
    ours, theirs = (answers(each, get("/raw/fail/after-start"))[0] for each in (server, peer))
    assert (ours.status, ours.whole) == (500, True)
    assert (theirs.status, theirs.whole) == (200, False)


def test_our_connection_goes_on_after_a_500_of_the_framework(server: Server, peer: Server) -> None:
    # no head has announced an end, so the client may send its next request
    assert [answer.status for answer in answers(server, get("/fail"), get("/raw/echo"))] == [500, 200]
    with pytest.raises((AssertionError, BrokenPipeError, ConnectionResetError)):
        answers(peer, get("/fail"), get("/raw/echo"))


def test_an_answer_of_one_piece_has_its_length(server: Server, peer: Server) -> None:
    ours, theirs = (answers(each, get("/raw/unread"))[0] for each in (server, peer))
    assert (ours.length, theirs.length) == ("8", None)


def test_an_answer_to_http_1_0_has_no_chunks(server: Server, peer: Server) -> None:
    # RFC 9112, 6.1: it must not
    received = {}
    for each in (server, peer):
        with socket.create_connection(("127.0.0.1", each.port), timeout=30) as client:
            client.sendall(b"GET /raw/pieces HTTP/1.0\r\n\r\n")
            data = b""
            while piece := client.recv(65536):
                data += piece
        received[each.port] = b"chunked" in data
    assert received == {server.port: False, peer.port: True}


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /raw/scope HTTP/1.1\r\n\r\n",
        get("/raw/a b"),
        get("/raw/scope", "x-broken : 1"),
        get("/raw/scope", "content-length: 1, 2"),
        get("/raw/scope", "content-length: 3", "transfer-encoding: chunked", method="POST") + b"0\r\n\r\n",
    ],
    ids=["no host", "a space in the target", "a space in a name", "two lengths", "length and chunks"],
)
def test_what_is_no_valid_request_is_400(server: Server, request_: bytes) -> None:
    (answer,) = answers(server, request_)
    assert (answer.status, ("connection", "close") in answer.headers) == (400, True)
