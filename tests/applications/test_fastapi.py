"""FastAPI in the command, on every event loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosedOK
from websockets.sync.client import connect

from tests.applications.running import LOOPS, Server, deadlined

TEA = {"name": "tea", "price": 2.5, "tags": ["hot"]}


@pytest.fixture(scope="module", params=LOOPS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with deadlined("fastapi_site:app", request.param) as server:
        yield server


@pytest.fixture
def number(client: httpx.Client) -> int:
    """The number of an item that is stored."""
    return int(client.post("/items", json=TEA).json()["number"])


def test_an_item_is_created_read_replaced_and_removed(client: httpx.Client) -> None:
    created = client.post("/items", json=TEA)
    assert created.status_code == 201
    number = created.json()["number"]
    assert created.json() == {**TEA, "number": number}
    where = created.headers["location"]
    assert where.endswith(f"/items/{number}")
    assert client.get(where).json() == {**TEA, "number": number}
    assert client.get(where, params={"fields": ["name", "price"]}).json() == {"name": "tea", "price": 2.5}
    assert client.put(where, json={**TEA, "name": "coffee"}).json()["name"] == "coffee"
    removed = client.delete(where)
    assert (removed.status_code, removed.content) == (204, b"")
    gone = client.get(where)
    assert (gone.status_code, gone.json()) == (404, {"detail": f"no item {number}"})
    assert gone.headers["x-number"] == str(number)


@pytest.mark.parametrize(
    ("request_", "where", "kind"),
    [
        (("POST", "/items", {"json": {}}), ["body", "name"], "missing"),
        (("POST", "/items", {"json": {**TEA, "price": -1}}), ["body", "price"], "greater_than"),
        (("POST", "/items", {"content": b"{", "headers": {"content-type": "application/json"}}), ["body", 1], "json"),
        (("POST", "/items", {}), ["body"], "missing"),
        (("GET", "/items/five", {}), ["path", "number"], "int_parsing"),
        (("GET", "/threaded?size=1000", {}), ["query", "size"], "less_than_equal"),
        (("POST", "/upload", {"data": {"note": "x"}}), ["body", "file"], "missing"),
    ],
)
def test_what_is_invalid_is_422_and_told(
    client: httpx.Client, request_: tuple[str, str, dict[str, Any]], where: list[object], kind: str
) -> None:
    method, path, options = request_
    response = client.request(method, path, **options)
    assert response.status_code == 422
    (detail, *_) = response.json()["detail"]
    assert detail["loc"] == where
    assert detail["type"].startswith(kind)


def test_a_method_that_is_not_there_is_405(client: httpx.Client, number: int) -> None:
    response = client.patch(f"/items/{number}", json={})
    assert response.status_code == 405
    assert response.headers["x-path"] == f"/items/{number}"


def test_a_plain_function_runs_in_a_thread(client: httpx.Client) -> None:
    assert client.get("/threaded?size=3").json() == {"main": False, "size": 3}


def test_dependencies_open_and_close_around_the_handler(client: httpx.Client) -> None:
    client.get("/trace")
    assert client.get("/order").json() == {"over": "connection"}
    opened = ["session opened", "connection opened in session"]
    closed = ["connection closed", "session closed"]
    assert client.get("/trace?until=session+closed").json() == [*opened, "handled", *closed]


def test_a_dependency_sees_the_error_and_a_handler_answers_it(client: httpx.Client) -> None:
    client.get("/trace")
    response = client.get("/order/sold-out")
    assert (response.status_code, response.json()) == (409, {"detail": "sold out"})
    assert client.get("/trace?until=session+closed").json()[-2:] == ["session rolled back", "session closed"]


def test_headers_cookies_and_credentials_are_injected(client: httpx.Client) -> None:
    headers = {"user-agent": "curl", "cookie": "visits=3"}
    response = client.get("/whoami", auth=("ann", "secret"), headers=headers)
    assert response.json() == {"name": "ann", "visits": 3, "agent": "curl"}
    refused = client.get("/whoami")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Basic")


def test_files_are_uploaded(client: httpx.Client) -> None:
    big: tuple[str, Any] = ("file", ("big.bin", bytes(2_000_000)))
    files = [big, ("more", b"abc"), ("more", b"defgh")]
    response = client.post("/upload", data={"note": "é"}, files=files)
    assert response.json() == {"name": "big.bin", "size": 2_000_000, "note": "é", "more": [3, 5]}


def test_background_tasks_run_in_threads_and_coroutines_after_the_response(client: httpx.Client) -> None:
    client.get("/trace")
    assert client.post("/mail").json() == {"state": "queued"}
    assert client.get("/mail").json() == "sent"
    assert client.get("/trace").json() == ["written", "sent"]


def test_a_plain_generator_is_streamed_from_a_thread(client: httpx.Client) -> None:
    with client.stream("GET", "/numbers?count=100") as response:
        assert list(response.iter_lines()) == [str(number) for number in range(100)]


def test_the_documentation_is_served(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "/openapi.json" in page.text
    schema = client.get("/openapi.json").json()
    assert schema["info"] == {"title": "Shop", "version": "1.2.3"}
    assert set(schema["paths"]["/items/{number}"]) == {"get", "put", "delete"}
    assert client.get("/redoc").status_code == 200


def test_a_preflight_of_another_origin_is_answered(client: httpx.Client) -> None:
    asking = {"origin": "https://shop.example", "access-control-request-method": "PUT"}
    allowed = client.options("/items/1", headers=asking)
    assert allowed.headers["access-control-allow-origin"] == "https://shop.example"
    assert client.options("/items/1", headers={**asking, "origin": "https://x.example"}).status_code == 400


def test_a_redirect_is_followed(client: httpx.Client) -> None:
    client.get("/trace")
    assert client.get("/old").status_code == 301
    assert client.get("/old", follow_redirects=True).json() == []
    # a slash too many
    assert client.post("/items/", json=TEA).headers["location"].endswith("/items")


@pytest.mark.parametrize("path", ["/fail", "/fail/threaded", "/fail/answer"])
def test_an_error_is_500_and_the_next_request_is_served(client: httpx.Client, path: str) -> None:
    response = client.get(path)
    assert (response.status_code, response.text) == (500, "Internal Server Error")
    assert client.get("/threaded").status_code == 200


def test_a_websocket_is_accepted_and_closed(server: Server, client: httpx.Client) -> None:
    with connect(f"ws://127.0.0.1:{server.port}/chat") as peer, pytest.raises(ConnectionClosedOK):
        peer.recv(30)
    assert client.get("/threaded").status_code == 200
