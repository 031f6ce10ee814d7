"""Timeouts and limits by path and method."""

from __future__ import annotations

import math

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from deadlined.http import BadRequest, Exchange, Limits, Reason, Route, Timeouts
from deadlined.http.routes import NOT_PER_ROUTE, PER_ROUTE, Routes
from tests.support.examples import examples
from tests.support.http import answer, chunk, echo, hello, only, serving

pytestmark = pytest.mark.usefixtures("parser")


def route(path: str, *methods: str, **overrides: float) -> Route:
    return Route(path, frozenset(methods), overrides)


def unobserved(path: str) -> Route:
    return Route(path, frozenset(), {}, observed=False)


def request(path: str = "/", method: str = "GET", *fields: str, last: bool = False) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: x", *fields, *(["connection: close"] if last else [])]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chosen(routes: list[Route], method: str, path: str) -> float | None:
    """Return the `handler` of the route that is chosen, None for none."""
    choice = Routes(routes, Timeouts(), Limits()).choose(method, path.encode())
    return None if choice is None else choice.timeouts.handler


# which route


@pytest.mark.parametrize(
    ("path", "matches"),
    [
        ("/upload", True),
        ("/upload/", True),
        ("/upload/a/b", True),
        ("/upload?a=b", True),
        ("/upload?/x", True),
        ("/%75pload", True),
        ("/upload%2Fa", True),
        ("/uploads", False),
        ("/Upload", False),
        ("/a/upload", False),
        ("/?/upload", False),
        ("/upload/.a", True),
        ("/upload/./a", True),
        ("/upload//a", True),
        ("/upload/a/../b", True),
        ("/a//b/../.c", False),
        ("/?//upload", False),
        ("*", False),
    ],
)
def test_a_route_is_for_its_path_and_what_lies_below(path: str, matches: bool) -> None:
    for written in ("/upload", "/upload/"):
        assert (chosen([route(written, handler=1)], "GET", path) == 1) == matches


@pytest.mark.parametrize(
    "path",
    [
        "//upload",
        "/./upload",
        "/a/../upload",
        "/../upload",
        "/%2e/upload",
        "/a/%2E%2e/upload",
        "/%2Fupload",
        "/a/..//upload",
        "/./upload//..",
        "//upload/../a",
        "/upload/..",
        "/upload/../a",
        "/upload/a//../..",
    ],
)
def test_a_path_whose_route_depends_on_the_reader_is_refused(path: str) -> None:
    with pytest.raises(BadRequest, match="several ways") as raised:
        chosen([route("/upload", handler=1)], "GET", path)
    assert raised.value.status == 400
    # not if it makes no difference
    assert chosen([route("/upload", "POST", handler=1)], "GET", path) is None
    assert chosen([route("/", handler=1)], "GET", path) == 1


def test_the_root_is_above_all_paths() -> None:
    for path in ("/", "/a", "/?x", "/%20"):
        assert chosen([route("/", handler=1)], "GET", path) == 1
    assert chosen([route("/", handler=1)], "OPTIONS", "*") is None


def test_the_longest_path_counts_whatever_the_order_and_then_the_method() -> None:
    routes = [
        route("/", handler=1),
        route("/a/b", "POST", handler=2),
        route("/a", handler=3),
        route("/a", "GET", "HEAD", handler=4),
    ]
    for ordered in (routes, routes[::-1]):
        assert chosen(ordered, "POST", "/a/b/c") == 2
        assert chosen(ordered, "GET", "/a/b") == 4
        assert chosen(ordered, "PUT", "/a/b") == 3
        assert chosen(ordered, "GET", "/c") == 1


@pytest.mark.parametrize("method", ["post", "PoSt"])
def test_a_route_for_a_method_is_for_it_in_small_letters(method: str) -> None:
    routes = [route("/a", "POST", handler=1), route("/a", handler=2)]
    assert chosen(routes, method, "/a") == 1
    assert chosen(routes, "get", "/a") == 2


@settings(max_examples=examples(200))
@given(
    st.lists(st.sampled_from(["/", "/a", "/a/b", "/a/b/c", "/ab", "/c"]), unique=True),
    st.lists(st.sampled_from(["a", "b", "c", "ab"]), max_size=4),
)
def test_the_choice_is_that_of_the_longest_list_of_segments(paths: list[str], segments: list[str]) -> None:
    routes = [route(path, handler=float(number)) for number, path in enumerate(paths)]
    path = "/" + "/".join(segments)

    def below(prefix: str) -> bool:
        parts = [part for part in prefix.split("/") if part]
        return segments[: len(parts)] == parts

    fitting = [(prefix.count("/"), len(prefix), number) for number, prefix in enumerate(paths) if below(prefix)]
    assert chosen(routes, "GET", path) == (float(max(fitting)[2]) if fitting else None)


def test_what_is_not_overridden_is_the_servers() -> None:
    base = Timeouts(idle=7, body_grace=8), Limits(max_body=9)
    choice = Routes([route("/a", handler=1, max_body=2)], *base).choose("GET", b"/a")
    assert choice is not None
    assert (choice.timeouts.idle, choice.timeouts.body_grace, choice.timeouts.handler) == (7, 8, 1)
    assert choice.limits.max_body == 2


# what a route cannot be


@pytest.mark.parametrize("name", NOT_PER_ROUTE)
def test_what_passes_before_the_path_is_known_cannot_be_overridden(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} cannot be set for a route: {NOT_PER_ROUTE[name]}"):
        route("/", **{name: 1})


@pytest.mark.parametrize("name", PER_ROUTE)
def test_all_else_can_be_overridden(name: str) -> None:
    value = math.inf if name == "max_running" else 5
    assert Routes([route("/", **{name: value})], Timeouts(), Limits()).choose("GET", b"/") is not None


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: route("upload"), "'upload' is not a path for a route"),
        (lambda: route("/", "get"), "'get' is not a method: write it in capitals"),
        (lambda: route("/", "GET,PUT"), "'GET,PUT' is not a method: write it in capitals"),
        (lambda: route("/", "GET "), "'GET ' is not a method: write it in capitals"),
        (lambda: route("/", max_running=5), "max_running can only be off for a route"),
        (lambda: route("/", idel=1), "idel is neither a timeout nor a limit"),
        (lambda: route("/", handler=-1), "handler must be 0 or more"),
        (lambda: route("/", handler=math.nan), "handler must be 0 or more"),
        (lambda: route("/", max_body=0), "max_body must be at least 1"),
        (lambda: Routes([route("/a"), route("/a/")], Timeouts(), Limits()), "two routes are for /a"),
        (lambda: Routes([route("/a", "GET", "PUT"), route("/a", "PUT")], Timeouts(), Limits()), "two routes are for"),
    ],
)
def test_a_route_that_is_wrong_is_told(make: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()  # type: ignore[operator]


# what it does


async def test_the_handler_of_a_route_has_its_own_time(autojump_clock: MockClock) -> None:
    async def sleep(exchange: Exchange) -> None:
        await trio.sleep(10)
        await answer(exchange)

    routes = [route("/slow", handler=20), route("/quick", handler=2)]
    async with serving(sleep, only(handler=5), routes=routes) as site:
        for path, status, at in (("/slow", 200, 10), ("/quick", 504, 2), ("/", 504, 5), ("/slow", 200, 10)):
            client = await site.connect()
            began = trio.current_time()
            assert (await client.get(request(path))).status == status, path
            assert trio.current_time() - began == pytest.approx(at, abs=0.01), path


async def test_each_request_of_a_connection_has_what_its_own_route_says(autojump_clock: MockClock) -> None:
    async def sleep(exchange: Exchange) -> None:
        await trio.sleep(3)
        await answer(exchange)

    async with serving(sleep, only(handler=5), routes=[route("/quick", handler=2)]) as site:
        client = await site.connect()
        assert (await client.get(request("/"))).status == 200
        # two in one packet
        await client.send(request("/") + request("/quick"))
        assert [(await client.response()).status for _ in range(2)] == [200, 504]
        assert await client.end() == "eof"


async def test_a_body_has_the_grace_and_the_rate_of_its_route(autojump_clock: MockClock) -> None:
    routes = [route("/upload", "POST", body_grace=60, body_min_rate=1)]
    async with serving(echo, only(body_grace=2, body_min_rate=1000), routes=routes) as site:
        for path, cut in (("/upload", False), ("/other", True)):
            client = await site.connect()
            await client.send(request(path, "POST", "content-length: 5"))
            await trio.sleep(10)
            await client.send_what_is_taken(b"hello")
            assert (await client.response()).status == (408 if cut else 200)
        assert await site.reason() is Reason.BODY_RATE


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_a_body_may_be_longer_or_must_be_shorter_on_a_route(autojump_clock: MockClock, chunked: bool) -> None:
    routes = [route("/upload", max_body=20), route("/tiny", max_body=5)]
    async with serving(echo, limits=Limits(max_body=10), routes=routes) as site:
        for path, length, status in (
            ("/upload", 20, 200),
            ("/upload", 21, 413),
            ("/tiny", 5, 200),
            ("/%74iny", 6, 413),
            ("/", 10, 200),
            ("/", 11, 413),
        ):
            client = await site.connect()
            field = "transfer-encoding: chunked" if chunked else f"content-length: {length}"
            body = chunk(bytes(length)) + chunk(b"") if chunked else bytes(length)
            await client.send_what_is_taken(request(path, "POST", field) + body)
            assert (await client.response()).status == status, (path, length)


async def test_a_client_that_does_not_read_is_cut_by_its_route(autojump_clock: MockClock) -> None:
    async def much(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(bytes(64 << 20), False)

    async with serving(much, only(write_grace=50, write_min_rate=1e12), routes=[route("/a", write_grace=3)]) as site:
        for number, (path, elapsed) in enumerate((("/a", 3), ("/b", 50)), 1):
            client = await site.connect(receive_buffer=4096)
            await client.send(request(path))
            record = await site.ended(number)
            assert record.reason is Reason.WRITE_TIMEOUT
            assert record.elapsed == pytest.approx(elapsed, abs=0.1)


async def test_the_wait_for_the_next_request_is_that_of_the_last_ones_route(autojump_clock: MockClock) -> None:
    async with serving(hello, only(idle=50, read_header=5), routes=[route("/a", idle=3)]) as site:
        client = await site.connect()
        assert (await client.get(request("/a"))).headers["keep-alive"] == "timeout=3"
        assert (await client.get(request("/b"))).headers["keep-alive"] == "timeout=50"
        await trio.sleep(40)
        assert (await client.get(request("/a"))).status == 200
        record = await site.ended()
        assert record.reason is Reason.IDLE_TIMEOUT
        assert record.elapsed == pytest.approx(44, abs=0.1)


@pytest.mark.parametrize(("of_route", "ended"), [(600, 601), (3, 4)])
async def test_new_timeouts_of_a_server_leave_the_wait_for_the_next_request_to_the_last_ones_route(
    of_route: float, ended: float, autojump_clock: MockClock
) -> None:
    async with serving(hello, only(idle=50), routes=[route("/a", idle=of_route)]) as site:
        client = await site.connect()
        assert (await client.get(request("/a"))).headers["keep-alive"] == f"timeout={of_route}"
        await trio.sleep(1)
        site.server.set_timeouts(only(idle=40))
        record = await site.ended()
        assert record.reason is Reason.IDLE_TIMEOUT
        assert record.elapsed == pytest.approx(ended, abs=0.1)


async def test_the_new_idle_timeout_of_a_route_is_for_those_who_are_idle_after_it(autojump_clock: MockClock) -> None:
    async with serving(routes=[route("/a", handler=9)]) as site:
        after_a, after_b = await site.connect(), await site.connect()
        await after_a.get(request("/a"))
        await after_b.get(request("/b"))
        await trio.sleep(100)
        site.server.configure(routes=[route("/a", idle=5)])
        await trio.sleep(100)
        (record,) = site.records.connections
        assert record.elapsed == pytest.approx(106, abs=0.1)
        assert (await after_b.get(request("/b"))).status == 200


async def test_a_reload_leaves_what_is_still_to_be_sent_to_the_route_of_its_request(autojump_clock: MockClock) -> None:
    async def much(exchange: Exchange) -> None:
        exchange.start(200, [])
        with trio.move_on_after(1):
            await exchange.send(bytes(64 << 20), False)

    async with serving(much, only(write_grace=10), routes=[route("/a", write_grace=600)]) as site:
        client = await site.connect(receive_buffer=4096)
        await client.send(request("/a"))
        await trio.sleep(100)
        site.server.configure()
        await trio.sleep(400)
        assert (site.server.open_connections, site.server.statistics().requests) == (1, 1)


async def test_new_timeouts_of_a_server_keep_the_overrides_also_of_a_request_that_runs(
    autojump_clock: MockClock,
) -> None:
    async with serving(echo, only(body_grace=5, body_min_rate=1e12), routes=[route("/a", body_grace=20)]) as site:
        client = await site.connect()
        await client.send(request("/a", "POST", "content-length: 10") + b"hello")
        await trio.sleep(1)
        site.server.set_timeouts(only(body_grace=1, body_min_rate=1e12, idle=9))
        await trio.sleep(15)
        await client.send(b"again")
        response = await client.response()
        assert (response.status, response.headers["keep-alive"]) == (200, "timeout=9")
        await client.send(request("/", "POST", "content-length: 10"))
        assert (await client.response()).status == 408


# which requests are observed


async def test_requests_of_a_route_that_is_not_observed_are_counted_and_not_recorded(autojump_clock: MockClock) -> None:
    routes = [unobserved("/healthz"), route("/healthz", "POST", handler=9)]
    async with serving(routes=routes) as site:
        client = await site.connect()
        # two in one packet, and one more
        await client.send(request("/healthz") + request("/shop"))
        assert [(await client.response()).status for _ in range(2)] == [200, 200]
        assert (await client.get(request("/healthz/deep?x", last=True))).status == 200
        assert await client.end() == "eof"
        record = await site.ended()
        client = await site.connect()
        assert (await client.get(request("/healthz", "POST", last=True))).status == 200
        await site.ended(2)
        assert [one.target for one in site.records.requests] == ["/shop", "/healthz"]
        assert record.requests == 3
        assert site.server.statistics().requests == 4


@pytest.mark.parametrize(
    ("last", "timeouts", "recorded"),
    [
        # the client leaves
        ("", {}, []),
        (request("/healthz", last=True).decode(), {}, []),
        (request("/shop", last=True).decode(), {}, [Reason.DONE]),
        ("GET /h", {}, [Reason.HEADER_TIMEOUT]),
        ("GET /h", {"read": 3}, [Reason.READ_TIMEOUT]),
        (request("/healthz", "POST", "content-length: 5").decode(), {"read": 3}, []),
        (request("/healthz", "POST", "transfer-encoding: chunked").decode() + "no chunk\r\n", {}, []),
        ("no HTTP\r\n\r\n", {}, [Reason.PROTOCOL_ERROR]),
        (f"GET / HTTP/1.1\r\nhost: x\r\na: {'b' * 70000}\r\n\r\n", {}, [Reason.HEADER_TOO_LARGE]),
    ],
)
async def test_a_connection_without_observed_requests_is_not_recorded_unless_a_further_head_ends_it(
    autojump_clock: MockClock, last: str, timeouts: dict[str, float], recorded: list[Reason]
) -> None:
    async with serving(echo, only(read_header=5, **timeouts), routes=[unobserved("/healthz")]) as site:
        client = await site.connect()
        assert (await client.get(request("/healthz"))).status == 200
        if last:
            await client.send_what_is_taken(last.encode())
            await client.end()
        client.conn.close()
        await trio.sleep(1)
        assert site.server.open_connections == 0
        assert [record.reason for record in site.records.connections] == recorded


async def test_a_head_that_the_end_of_the_server_cuts_is_recorded(autojump_clock: MockClock) -> None:
    async with serving(routes=[unobserved("/healthz")]) as site:
        for rest in (b"", b"GET /h"):
            client = await site.connect()
            assert (await client.get(request("/healthz"))).status == 200
            await client.send(rest)
        await trio.sleep(1)
        site.stop()
        await site.ended()
        assert [record.reason for record in site.records.connections] == [Reason.DRAIN_TIMEOUT]


async def test_a_reload_can_hide_a_request_that_runs(autojump_clock: MockClock) -> None:
    async def sleep(exchange: Exchange) -> None:
        await trio.sleep(3)
        await answer(exchange)

    async with serving(sleep) as site:
        client = await site.connect()
        await client.send(request("/healthz"))
        await trio.sleep(1)
        site.server.configure(routes=[unobserved("/healthz")])
        assert (await client.response()).status == 200
        site.server.configure(routes=())
        assert (await client.get(request("/healthz", last=True))).status == 200
        assert (await site.ended()).requests == 2
        assert len(site.records.requests) == 1


async def test_a_path_whose_route_depends_on_the_reader_is_answered_with_400(autojump_clock: MockClock) -> None:
    async with serving(hello, only(), routes=[route("/login", max_body=5)]) as site:
        client = await site.connect()
        assert (await client.get(request("//other"))).status == 200
        assert (await client.get(request("/a/../login"))).status == 400
        assert await client.end() == "eof"
        assert await site.reason() is Reason.PROTOCOL_ERROR


async def test_a_reload_leaves_a_request_whose_route_would_depend_on_the_reader(autojump_clock: MockClock) -> None:
    async def handler(exchange: Exchange) -> None:
        site.server.configure(routes=[route("/login", handler=1)])
        await trio.sleep(5)
        await answer(exchange)

    async with serving(handler, only(handler=10), routes=[]) as site:
        client = await site.connect()
        assert (await client.get(request("//login"))).status == 200
