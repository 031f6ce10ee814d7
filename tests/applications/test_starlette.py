"""Starlette in the command, on every event loop."""

from __future__ import annotations

import hashlib
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.applications.running import LOOPS, ON_ASYNCIO, Server, deadlined
from tests.applications.sites import starlette_site
from tests.support.command import PATIENCE


@pytest.fixture(scope="module", params=LOOPS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with deadlined("starlette_site:app", request.param) as server:
        yield server


# routing


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_methods_and_queries_reach_the_endpoint(client: httpx.Client, method: str) -> None:
    response = client.request(method, "/?a=1&a=2&b=%C3%A9+x")
    assert response.json() == {"method": method, "query": [["a", "1"], ["a", "2"], ["b", "é x"]], "name": "/"}


def test_head_has_the_headers_of_get_and_no_body(client: httpx.Client) -> None:
    get, head = client.get("/state"), client.head("/state")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"] == "4"


def test_a_path_is_converted_and_what_does_not_fit_is_404_or_405(client: httpx.Client) -> None:
    assert client.get("/items/007").json() == {"number": 7, "url": "/items/007"}
    assert client.get("/items/seven").status_code == 404
    assert client.get("/path/a%20b/%E2%82%AC").json()["name"] == "/path/a b/€"
    assert client.post("/items/7").status_code == 405
    assert set(client.post("/items/7").headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_a_redirect_names_the_host_that_the_client_asked(server: Server, client: httpx.Client) -> None:
    response = client.get("/redirect")
    assert (response.status_code, response.headers["location"]) == (303, f"{server.url}/")
    assert client.get("/redirect", headers={"host": "shop.example"}).headers["location"] == "http://shop.example/"
    assert client.get("/redirect", follow_redirects=True).json()["method"] == "GET"


def test_cookies_go_both_ways(client: httpx.Client) -> None:
    response = client.get("/cookies", headers={"cookie": "a=b; c=d"})
    assert response.json() == {"a": "b", "c": "d"}
    assert response.headers.get_list("set-cookie") == [
        "one=1; Max-Age=60; Path=/; SameSite=lax",
        "two=2; HttpOnly; Path=/; SameSite=lax",
    ]


def test_both_kinds_of_middleware_see_every_response(client: httpx.Client) -> None:
    for path in ("/", "/nowhere", "/teapot", "/stream"):
        response = client.get(path)
        assert (response.headers["x-plain"], response.headers["x-base"]) == ("seen", "GET")


def test_a_response_is_compressed_if_the_client_wants_it(client: httpx.Client) -> None:
    response = client.get("/file", headers={"accept-encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    plain = client.get("/file", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert response.content == plain.content


# bodies


def test_a_form_with_files_is_parsed(client: httpx.Client) -> None:
    response = client.post(
        "/form", data={"note": "é"}, files={"one": ("a.txt", b"a" * 10, "text/plain"), "two": bytes(3_000_000)}
    )
    assert response.json() == {
        "note": "é",
        "one": ["a.txt", "text/plain", 10],
        "two": ["upload", "application/octet-stream", 3_000_000],
    }
    assert client.post("/form", data={"a": "b c", "d": "&"}).json() == {"a": "b c", "d": "&"}


@pytest.mark.parametrize("announced", [True, False], ids=["content-length", "chunked"])
def test_a_large_body_comes_in_pieces(client: httpx.Client, announced: bool) -> None:
    data = b"deadline" * (1 << 18)
    pieces = (data[start : start + 65536] for start in range(0, len(data), 65536))
    answer = client.post("/digest", content=data if announced else pieces).json()
    assert answer == {"length": len(data), "digest": hashlib.sha256(data).hexdigest(), "in pieces": True}


def test_an_empty_body_is_empty(client: httpx.Client) -> None:
    assert client.put("/digest").json()["length"] == 0
    assert client.put("/digest", content=iter([b""])).json()["length"] == 0


def test_a_body_is_answered_while_it_comes(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        received = b""
        while b"first" not in received:
            received += client.recv(65536)
        client.sendall(b"6\r\nsecond\r\n0\r\n\r\n")
        while b"0\r\n\r\n" not in received:
            received += client.recv(65536)
    assert b"second" in received


# streams


def test_a_stream_arrives_whole_and_its_connection_goes_on(client: httpx.Client) -> None:
    for _ in range(3):
        with client.stream("GET", "/stream", params={"lines": 200}) as response:
            lines = list(response.iter_lines())
        assert lines == [f"line {number}" for number in range(200)]
        assert response.headers["transfer-encoding"] == "chunked"


def test_events_are_sent_as_they_happen(client: httpx.Client) -> None:
    with client.stream("GET", "/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        text = "".join(response.iter_text())
    assert text.split("\r\n\r\n")[:-1] == [f"id: {n}\r\nevent: count\r\ndata: number {n}" for n in range(3)]


def test_a_source_of_events_ends_when_its_client_has_left(client: httpx.Client) -> None:
    with client.stream("GET", "/events/endless") as response:
        assert next(response.iter_text()).startswith("data: again")
    assert client.get("/wait/left").text == "left is done"


@pytest.mark.parametrize("loop", ON_ASYNCIO)
def test_sources_of_events_end_when_the_drain_begins_and_it_cuts_nothing(loop: str) -> None:
    with (
        deadlined("starlette_site:app", loop, "--drain=10s") as server,
        httpx.stream("GET", f"{server.url}/events/endless", timeout=30) as response,
    ):
        data = response.iter_raw()
        next(data)
        server.process.send_signal(signal.SIGTERM)
        for _ in data:
            pass
        assert server.process.wait(PATIENCE) == 0


def test_files_are_served_whole_in_part_and_conditionally(client: httpx.Client) -> None:
    with open(starlette_site.__file__, "rb") as source:  # noqa: PTH123
        content = source.read()
    whole = client.get("/static/starlette_site.py", headers={"accept-encoding": "identity"})
    assert whole.content == content
    ranged = {"accept-encoding": "identity", "range": "bytes=10-19"}
    part = client.get("/static/starlette_site.py", headers=ranged)
    assert (part.status_code, part.content) == (206, content[10:20])
    assert part.headers["content-range"] == f"bytes 10-19/{len(content)}"
    beyond = client.get("/static/starlette_site.py", headers={"range": "bytes=10000000-"})
    assert beyond.status_code == 416
    same = client.get("/static/starlette_site.py", headers={"if-none-match": whole.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    assert client.get("/static/../conftest.py").status_code == 404
    named = client.get("/file")
    assert named.headers["content-disposition"] == 'attachment; filename="site.py"'


# tasks, threads, state


def test_a_plain_function_runs_in_a_thread_with_the_requests_context(client: httpx.Client) -> None:
    assert client.get("/threaded").json() == {"main": False, "name": "/threaded"}


def test_a_background_task_runs_after_the_response(client: httpx.Client) -> None:
    response = client.post("/begin/work")
    assert (response.status_code, response.text) == (202, "begun")
    assert client.get("/wait/work").text == "work is done"


def test_requests_wait_for_each_other_side_by_side(client: httpx.Client) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(client.get, "/wait/side") for _ in range(5)]
        assert client.post("/begin/side").status_code == 202
        assert [each.result().text for each in waiting] == ["side is done"] * 5


def test_a_request_may_start_a_task_of_the_lifespan(client: httpx.Client) -> None:
    assert client.post("/spawn").text == "spawned"
    assert client.get("/wait/spawned").text == "spawned is done"


def test_tasks_threads_and_timeouts_of_anyio_work(client: httpx.Client) -> None:
    assert client.get("/together").json() == {"squares": [0, 1, 4, 9, 16], "timed out": True}


def test_the_state_of_the_lifespan_reaches_requests(client: httpx.Client) -> None:
    assert client.get("/state").text == "open"


# errors


def test_an_error_is_500_and_logged_with_its_traceback(server: Server, client: httpx.Client) -> None:
    def failures() -> list[str]:
        return [line["exception"] for line in server.log() if "LookupError" in line.get("exception", "")]

    before = len(failures())
    response = client.get("/fail")
    assert (response.status_code, response.text) == (500, "Internal Server Error")
    # the line is written before the next answer, and read in another thread
    assert client.get("/state").status_code == 200
    while len(failures()) == before:
        time.sleep(0.001)
    assert len(failures()) == before + 1
    assert "in fail" in failures()[-1]


def test_after_an_error_in_a_stream_the_next_request_is_served(client: httpx.Client) -> None:
    # BaseHTTPMiddleware ends the body before it raises, on every server
    assert client.get("/fail/late").text == "begun"
    assert client.get("/state").status_code == 200


def test_handlers_of_exceptions_answer(client: httpx.Client) -> None:
    assert (client.get("/teapot").status_code, client.get("/teapot").text) == (418, "no tea")
    response = client.get("/forbidden")
    assert (response.status_code, response.text, response.headers["x-why"]) == (403, "not for you", "closed")


def test_a_client_that_leaves_in_its_body_is_a_disconnect(server: Server, client: httpx.Client) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as leaving:
        leaving.sendall(b"POST /patient HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc")
    assert client.get("/wait/cut").text == "cut is done"


def test_a_websocket_is_denied_where_there_is_none_and_the_connection_goes_on(server: Server) -> None:
    upgrade = b"GET %b HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    key = b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(upgrade % b"/nothing" + key)
        assert client.recv(65536).startswith(b"HTTP/1.1 403 Forbidden\r\n")
        client.sendall(b"GET /state HTTP/1.1\r\nhost: a\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
