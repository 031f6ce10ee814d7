"""Litestar in the command, on every event loop."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.applications.running import LOOPS, Server, deadlined

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", params=LOOPS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with deadlined("litestar_site:app", request.param) as server:
        yield server


def test_an_item_is_created_read_and_removed(client: httpx.Client) -> None:
    created = client.post("/items", json={"name": "tea", "price": 2})
    assert created.status_code == 201
    where = f"/items/{created.json()['number']}"
    assert client.get(where).json() == {"name": "tea", "price": 2.0}
    assert client.delete(where).status_code == 204
    gone = client.get(where)
    assert (gone.status_code, gone.json()["detail"]) == (404, f"no item {where[7:]}")


@pytest.mark.parametrize("body", [{}, {"name": "tea", "price": -1}, {"name": 1, "price": 1}])
def test_what_is_invalid_is_400(client: httpx.Client, body: dict[str, object]) -> None:
    response = client.post("/items", json=body)
    assert (response.status_code, response.json()["status_code"]) == (400, 400)


def test_queries_and_headers_are_injected(client: httpx.Client) -> None:
    assert client.get("/search?limit=7", headers={"user-agent": "x"}).json() == {"limit": 7, "agent": "x"}
    assert client.get("/search?limit=70").status_code == 400
    assert client.get("/search").headers["x-mark"] == "seen"


def test_a_plain_function_runs_in_a_thread(client: httpx.Client) -> None:
    assert client.get("/threaded").json() == {"main": False}


def test_files_are_uploaded(client: httpx.Client) -> None:
    response = client.post("/upload", files={"one": ("a.bin", bytes(1_500_000)), "two": ("b.txt", b"abc")})
    assert response.json() == {"one": ["a.bin", 1_500_000], "two": ["b.txt", 3]}


def test_a_chunked_body_is_read_in_pieces(client: httpx.Client) -> None:
    assert client.post("/length", content=iter([bytes(500_000)] * 4)).json() == {"length": 2_000_000}


def test_streams_and_events_arrive_whole(client: httpx.Client) -> None:
    with client.stream("GET", "/stream?lines=100") as response:
        assert list(response.iter_lines()) == [f"line {number}" for number in range(100)]
    events = client.get("/events")
    assert events.headers["content-type"].startswith("text/event-stream")
    assert [line for line in events.text.split() if line.isdigit()] == ["0", "1", "2"]


def test_a_dependency_closes_after_the_handler(client: httpx.Client) -> None:
    assert client.get("/order").json() == {"over": "connection"}
    while client.get("/trace").json()[-2:] != ["opened", "closed"]:
        pass


def test_a_background_task_runs(client: httpx.Client) -> None:
    assert (client.post("/begin").status_code, client.post("/begin").text) == (202, "begun")
    while "worked" not in client.get("/trace").json():
        pass


def test_refusals_redirects_and_documents(client: httpx.Client) -> None:
    assert client.get("/nowhere").status_code == 404
    assert client.patch("/search").status_code == 405
    assert client.get("/teapot").json()["detail"] == "no tea"
    assert client.get("/old").headers["location"] == "/trace"
    assert "/items/{number}" in client.get("/schema/openapi.json").json()["paths"]


def test_an_error_is_500_and_the_next_request_is_served(client: httpx.Client) -> None:
    assert client.get("/fail").status_code == 500
    assert client.get("/search").status_code == 200
