"""BlackSheep in the command, on every event loop."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.applications.running import LOOPS, Server, deadlined

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", params=LOOPS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with deadlined("blacksheep_site:app", request.param) as server:
        yield server


def test_paths_queries_and_bodies_are_bound(client: httpx.Client) -> None:
    assert client.get("/hello/caf%C3%A9").text == "hello café"
    assert client.get("/search?limit=3").json() == {"limit": 3}
    assert client.get("/search?limit=x").status_code == 400
    created = client.post("/items", json={"name": "tea", "price": 2})
    assert (created.status_code, created.json()) == (201, {"name": "tea", "price": 2})
    assert client.post("/items", content=b"{", headers={"content-type": "application/json"}).status_code == 400


def test_a_middleware_sees_every_response(client: httpx.Client) -> None:
    assert client.get("/hello/you").headers["x-mark"] == "seen"


def test_a_plain_function_is_called(client: httpx.Client) -> None:
    assert client.get("/threaded").json() == {"main": True}


def test_files_are_uploaded(client: httpx.Client) -> None:
    response = client.post("/upload", files={"one": bytes(1_500_000), "two": b"abc"})
    assert response.json() == {"one": 1_500_000, "two": 3}


def test_a_chunked_body_is_read_in_pieces(client: httpx.Client) -> None:
    assert client.post("/length", content=iter([bytes(500_000)] * 4)).json() == {"length": 2_000_000}


def test_streams_and_events_arrive_whole(client: httpx.Client) -> None:
    with client.stream("GET", "/stream?lines=100") as response:
        assert list(response.iter_lines()) == [f"line {number}" for number in range(100)]
    assert client.get("/events").text.count('data: {"number":') == 3


def test_bytes_cookies_and_empty_answers(client: httpx.Client) -> None:
    response = client.get("/bytes")
    assert (response.content, response.headers["x-one"]) == (bytes(100_000), "1")
    assert client.get("/cookies", headers={"cookie": "a=b"}).json() == {"a": "b"}
    assert client.get("/cookies").headers["set-cookie"].startswith("one=1")
    assert (client.get("/empty").status_code, client.get("/empty").content) == (200, b"")


def test_refusals_and_redirects(client: httpx.Client) -> None:
    assert (client.get("/items/7").status_code, client.get("/items/7").text) == (404, "no item 7")
    assert client.get("/nowhere").status_code == 404
    assert client.get("/old", follow_redirects=True).text == "hello you"
    assert client.get("/teapot").status_code == 418


def test_an_error_is_500_and_the_next_request_is_served(client: httpx.Client) -> None:
    assert client.get("/fail").status_code == 500
    assert client.get("/hello/you").status_code == 200
