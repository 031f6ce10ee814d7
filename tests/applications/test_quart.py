"""Quart in the command on asyncio and uvloop, and Quart-Trio on trio."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import ConnectionClosedOK
from websockets.sync.client import connect

from tests.applications.running import LOOPS, Server, deadlined


@pytest.fixture(scope="module", params=LOOPS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    factory = "for_trio" if request.param == "trio" else "for_asyncio"
    with deadlined(f"quart_site:{factory}", request.param, "--factory") as server:
        yield server


def test_a_template_is_rendered(client: httpx.Client) -> None:
    assert client.get("/hello/caf%C3%A9%20au%20lait").text == "hello café au lait"
    assert client.head("/hello/you").headers["content-length"] == "9"


def test_json_goes_both_ways(client: httpx.Client) -> None:
    response = client.post("/json?a=1&a=2", json={"numbers": [1, 2, 3]})
    assert response.json() == {"sum": 6, "args": {"a": ["1", "2"]}}
    assert client.post("/json", content=b"{", headers={"content-type": "application/json"}).status_code == 400


def test_forms_and_files_are_parsed(client: httpx.Client) -> None:
    response = client.post("/form", data={"note": "é"}, files={"file": bytes(1_000_000)})
    assert response.json() == {"fields": {"note": "é"}, "files": {"file": 1_000_000}}


@pytest.mark.parametrize("announced", [True, False], ids=["content-length", "chunked"])
def test_a_large_body_is_read_in_pieces(client: httpx.Client, announced: bool) -> None:
    data = bytes(2_000_000)
    content = data if announced else iter([data[:1_000_000], data[1_000_000:]])
    assert client.post("/length", content=content).json() == {"length": 2_000_000}


def test_a_stream_arrives_whole(client: httpx.Client) -> None:
    with client.stream("GET", "/stream?lines=100") as response:
        assert list(response.iter_lines()) == [f"line {number}" for number in range(100)]


def test_a_plain_function_runs_in_a_thread(client: httpx.Client) -> None:
    assert client.get("/threaded").json() == {"main": False}


def test_a_session_is_kept_in_a_cookie(client: httpx.Client) -> None:
    assert [client.get("/visits").json()["visits"] for _ in range(3)] == [1, 2, 3]


def test_headers_status_and_hooks_arrive(client: httpx.Client) -> None:
    response = client.get("/headers", headers={"user-agent": "curl"})
    assert (response.status_code, response.headers["x-agent"], response.headers["x-mark"]) == (203, "curl", "seen")


def test_a_background_task_runs(client: httpx.Client) -> None:
    assert client.post("/begin").text == "begun"
    while "work" not in client.get("/finished").json():
        pass


def test_refusals_and_redirects(client: httpx.Client) -> None:
    assert client.get("/nowhere").status_code == 404
    assert client.post("/hello/you").status_code == 405
    assert client.get("/secret").status_code == 403
    assert client.get("/old", follow_redirects=True).text == "hello you"
    assert (client.get("/teapot").status_code, client.get("/teapot").text) == (418, "no tea")


def test_an_error_is_500_and_the_next_request_is_served(client: httpx.Client) -> None:
    assert client.get("/fail").status_code == 500
    assert client.get("/hello/you").status_code == 200


def test_a_websocket_is_greeted_and_closed(server: Server, client: httpx.Client) -> None:
    with connect(f"ws://127.0.0.1:{server.port}/chat") as peer:
        assert peer.recv(30) == "hello"
        with pytest.raises(ConnectionClosedOK):
            peer.recv(30)
    assert client.get("/hello/you").status_code == 200
