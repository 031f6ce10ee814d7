"""The scope of a request."""

from __future__ import annotations

import copy
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from deadlined import Listener
from deadlined.asgi.handler import AsgiHandler, Receive, Scope, Send
from deadlined.http import HttpServer
from tests.support.net import SERVER_NAME, certificates
from tests.support.serving import CLOSING_GET, GET, LOCALHOST, Served, say, serving
from tests.support.websocket import HANDSHAKE

pytestmark = pytest.mark.usefixtures("parser")


class Scopes:
    """An application that keeps every scope it is given."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(dict(scope))
        await say(send)


async def scope_of(request: bytes, state: dict[str, Any] | None = None) -> dict[str, Any]:
    app = Scopes()
    async with serving(app, state=state) as served:
        assert (await served.ask(request)).status == 200
    (scope,) = app.seen
    return scope


async def scope_of_target(target: bytes) -> dict[str, Any]:
    return await scope_of(b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % target)


async def test_the_scope_states_its_type_and_versions() -> None:
    scope = await scope_of(GET)
    assert scope["type"] == "http"
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.5"}
    assert scope["root_path"] == ""
    assert scope["method"] == "GET"


@pytest.mark.parametrize("method", [b"post", b"PoSt", b"m-search", b"X-1", b"2"])
async def test_the_method_is_in_capitals(method: bytes) -> None:
    scope = await scope_of(b"%b / HTTP/1.1\r\nhost: a\r\n\r\n" % method)
    assert scope["method"] == method.decode().upper()


@pytest.mark.parametrize(
    ("target", "path", "raw_path", "query"),
    [
        (b"/", "/", b"/", b""),
        (b"/a/b?x=1&y=%20", "/a/b", b"/a/b", b"x=1&y=%20"),
        (b"/caf%C3%A9%2Fau?", "/café/au", b"/caf%C3%A9%2Fau", b""),
        (b"/100%", "/100%", b"/100%", b""),
        (b"/%FF", "/\N{REPLACEMENT CHARACTER}", b"/%FF", b""),
        (b"/a?b?c", "/a", b"/a", b"b?c"),
        (b"//twice//", "//twice//", b"//twice//", b""),
        (b"http://shop.example/a%20b?q", "/a b", b"/a%20b", b"q"),
        (b"http://shop.example", "/", b"/", b""),
        (b"http://shop.example?next=/a", "/", b"/", b"next=/a"),
    ],
)
async def test_the_target_is_split_and_its_path_decoded(
    target: bytes, path: str, raw_path: bytes, query: bytes
) -> None:
    scope = await scope_of_target(target)
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, raw_path, query)


async def test_the_server_as_a_whole_has_an_asterisk_for_a_path() -> None:
    scope = await scope_of(b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n")
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("*", b"*", b"")


async def test_it_is_at_no_path_of_a_server_whose_application_is_mounted_at_one() -> None:
    app = Scopes()
    async with serving(app, root_path="/shop") as served:
        for target in (b"*", b"/a"):
            assert (await served.ask(b"OPTIONS %b HTTP/1.1\r\nhost: a\r\n\r\n" % target)).status == 200
    assert [(scope["path"], scope["raw_path"]) for scope in app.seen] == [("*", b"*"), ("/shop/a", b"/shop/a")]


async def test_the_host_of_a_url_is_the_host_of_the_request() -> None:
    scope = await scope_of_target(b"http://shop.example:81/")
    assert list(scope["headers"]) == [(b"host", b"shop.example:81")]


@pytest.mark.parametrize("target", [b"a?b=http://x/scope", b"a/b://x/", b"*://x/", b"http:///", b"x:443", b"*"])
async def test_a_target_of_no_form_does_not_reach_the_application(target: bytes) -> None:
    app = Scopes()
    async with serving(app) as served:
        assert (await served.ask(b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % target)).status == 400
        assert (await served.ask(b"CONNECT %b HTTP/1.1\r\nhost: a\r\n\r\n" % target)).status == 501
    assert app.seen == []


async def test_header_names_are_lower_case_and_repeated_ones_are_kept_in_order() -> None:
    scope = await scope_of(b"GET / HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nAccept:  B \r\nX-ONE: 2\r\n\r\n")
    assert list(scope["headers"]) == [(b"host", b"a"), (b"x-one", b"1"), (b"accept", b"B"), (b"x-one", b"2")]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_the_http_version_is_that_of_the_request(version: str) -> None:
    scope = await scope_of(f"GET / HTTP/{version}\r\nhost: a\r\n\r\n".encode())
    assert scope["http_version"] == version


async def test_client_and_server_are_the_two_ends_of_the_connection() -> None:
    app = Scopes()
    async with serving(app) as served, served.client() as client:
        await client.ask(GET)
        (scope,) = app.seen
        assert scope["client"] == client._stream.socket.getsockname()
        assert scope["server"] == (LOCALHOST, served.port)
        assert scope["scheme"] == "http"


@pytest.mark.parametrize("kind", ["", "\0"], ids=["a file", "abstract"])
async def test_the_server_of_a_unix_socket_is_its_path_without_a_port(tmp_path: Path, kind: str) -> None:
    path = f"{kind}{tmp_path}/shop.sock"
    app = Scopes()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        async with trio.open_nursery() as nursery:
            server = HttpServer(AsgiHandler(app))
            await nursery.start(server.serve, [Listener.from_socket(listening)])
            async with await trio.open_unix_socket(path) as stream:
                await stream.send_all(CLOSING_GET)
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
            nursery.cancel_scope.cancel()
    assert (app.seen[0]["server"], app.seen[0]["client"]) == ((path, None), None)


async def test_the_scheme_is_https_over_tls() -> None:
    app = Scopes()
    async with (
        serving(app, ssl_context=certificates().server) as served,
        httpx.AsyncClient(verify=certificates().client) as client,
    ):
        response = await client.get(served.url, headers={"host": SERVER_NAME}, extensions={"sni_hostname": SERVER_NAME})
    assert response.status_code == 200
    assert app.seen[0]["scheme"] == "https"


async def test_each_request_has_its_own_copy_of_the_state() -> None:
    shared: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["mine"] = scope["state"].get("mine", 0) + 1
        scope["state"]["shared"].append(scope["state"]["mine"])
        await say(send)

    async def ask_twice(served: Served) -> None:
        async with served.client() as client:
            await client.ask(GET)
            await client.ask(GET)

    state: dict[str, Any] = {"shared": shared}
    async with serving(app, state=state) as served:
        await ask_twice(served)
    assert shared == [1, 1]
    assert state == {"shared": shared}


@pytest.mark.parametrize("cancels", [True, False])
@pytest.mark.parametrize("request_", [GET, HANDSHAKE], ids=["http", "websocket"])
async def test_what_an_application_writes_into_a_scope_no_other_request_sees(request_: bytes, cancels: bool) -> None:
    seen: list[dict[str, Any]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(copy.deepcopy({**scope, "client": None}))
        for value in scope.values():
            if isinstance(value, dict):
                value["mine"] = 1
        scope["headers"].append((b"mine", b"1"))
        if scope["type"] == "http":
            await say(send)
        else:
            await send({"type": "websocket.close"})

    async with serving(app, state={}, cancel_on_disconnect=cancels) as served:
        for _ in range(2):
            await served.ask(request_)
    first, second = seen
    for scope in seen:
        del scope["extensions"]["deadlined"]
    assert first == second


async def test_without_a_lifespan_the_state_is_empty() -> None:
    assert (await scope_of(GET))["state"] == {}


async def test_the_extension_offers_its_names_as_keys_and_as_attributes() -> None:
    extension = (await scope_of(GET))["extensions"]["deadlined"]
    assert isinstance(extension, Mapping)
    names = {"set_read_deadline", "set_write_deadline", "set_handler_deadline", "deadline", "draining"}
    assert set(extension) == names
    assert len(extension) == len(names)
    assert all(extension[name] == getattr(extension, name) for name in names)
    assert "_exchange" not in extension
    assert extension.get("_exchange", 7) == 7
    assert dict(extension) == dict(extension.items()) == {name: extension.get(name) for name in names}
    assert list(extension.values()) == [extension[name] for name in extension]
    with pytest.raises(KeyError):
        extension["deadlines"]
