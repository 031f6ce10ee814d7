"""Django in the command, on asyncio and uvloop: its own ASGI handler, and the same behind the router of Channels."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.applications.running import Server, deadlined
from tests.support.command import PATIENCE

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", params=["asyncio app", "asyncio channels_app", "uvloop app"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    loop, app = request.param.split()
    with deadlined(f"django_site:{app}", loop, lifespan=False) as server:
        yield server


def test_views_run_in_threads_or_in_the_loop(client: httpx.Client) -> None:
    assert client.get("/hello/caf%C3%A9").text == "hello café"
    assert client.get("/threaded").json() == {"main": False}
    seen = client.get("/in-the-loop?a=1&b=%26").json()
    assert seen == {"main": True, "query": {"a": "1", "b": "&"}, "method": "GET"}


def test_a_plain_middleware_sees_every_view(client: httpx.Client) -> None:
    for path in ("/threaded", "/in-the-loop", "/nowhere"):
        assert client.get(path).headers["x-mark"] == "seen"


def test_the_database_is_asked(client: httpx.Client) -> None:
    assert client.get("/database").json() == {"answer": 42}


def test_views_run_side_by_side(client: httpx.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(client.get, ["/threaded", "/in-the-loop", "/database", "/hello/you"] * 5))
    assert {page.status_code for page in pages} == {200}


def test_forms_and_files_are_parsed(client: httpx.Client) -> None:
    response = client.post("/form", data={"note": "é"}, files={"file": bytes(3_000_000)})
    assert response.json() == {"fields": {"note": "é"}, "files": {"file": 3_000_000}}


def test_a_chunked_body_is_read(client: httpx.Client) -> None:
    assert client.post("/length", content=iter([bytes(300_000)] * 4)).json() == {"length": 1_200_000}


def test_a_stream_arrives_whole(client: httpx.Client) -> None:
    with client.stream("GET", "/stream?lines=100", headers={"accept-encoding": "identity"}) as response:
        assert list(response.iter_lines()) == [f"line {number}" for number in range(100)]


def test_a_session_is_kept_in_a_cookie(client: httpx.Client) -> None:
    assert [client.get("/visits").json()["visits"] for _ in range(3)] == [1, 2, 3]


def test_the_url_and_the_client_are_those_of_the_connection(server: Server, client: httpx.Client) -> None:
    assert client.get("/url?a=%20").json() == {"url": f"{server.url}/url?a=%20", "client": "127.0.0.1"}


def test_refusals_and_redirects(client: httpx.Client) -> None:
    assert client.get("/nowhere").status_code == 404
    assert client.get("/secret").status_code == 403
    assert client.get("/old", follow_redirects=True).text == "hello you"


@pytest.mark.parametrize("path", ["/fail", "/fail/in-the-loop"])
def test_an_error_is_500_and_the_next_request_is_served(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 500
    assert client.get("/hello/you").status_code == 200


def test_each_request_is_finished(client: httpx.Client) -> None:
    before = client.get("/finished").json()["finished"]
    client.get("/hello/you")
    assert client.get("/finished").json()["finished"] >= before + 1


@pytest.mark.parametrize("received", [1, 1_000_000])
def test_a_download_that_is_left_is_closed(server: Server, client: httpx.Client, received: int) -> None:
    closed = client.get("/finished").json()["closed"]
    with socket.create_connection(("127.0.0.1", server.port)) as left:
        left.sendall(b"GET /download HTTP/1.1\r\nhost: x\r\n\r\n")
        while received > 0:
            received -= len(left.recv(received))
        # a reset
        left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    late = time.monotonic() + PATIENCE
    while client.get("/finished").json()["closed"] == closed:
        assert time.monotonic() < late, "it is not closed"
        time.sleep(0.05)


def test_channels_routes_to_plain_asgi(server: Server, client: httpx.Client) -> None:
    response = client.get("/rooms/tea")
    channels = "channels_app" in " ".join(map(str, server.process.args))  # type: ignore[arg-type]
    assert (response.status_code, response.text == "tea") == ((200, True) if channels else (404, False))
