"""What the admin listener answers, beside a server with connections."""

from __future__ import annotations

import os
from typing import Any, Literal

import msgspec
import pytest
import trio
from trio.testing import MockClock

from deadlined.http import Route
from deadlined.proxy import Address, Proxy
from deadlined.runtime import current_host
from deadlined.service import ServeConfig
from deadlined.service.admin.gather import Serving
from deadlined.service.admin.local import LocalService
from deadlined.service.admin.picture import MOST_SHOWN, Question, Status
from deadlined.service.admin.views import parse_query
from deadlined.service.config.rereading import Reloaded
from tests.support.admin import Asker, Response, Still, answer, asking, checked_by_promtool, local, picture, samples
from tests.support.http import GET, Site, only, serving

PATHS = ("/", "/livez", "/readyz", "/metrics", "/connections", "/statistics", "/config")


async def crowd(site: Site) -> None:
    """Connect three idle clients, the first of which has asked twice, and two that send half a head."""
    for requests in (2, 1, 1):
        client = await site.connect()
        for _ in range(requests):
            await client.get()
        await trio.sleep(1)
    for _ in range(2):
        await (await site.connect()).send(GET[:5])
        await trio.sleep(1)


@pytest.mark.parametrize("path", PATHS)
async def test_each_path_answers_and_head_has_the_same_fields(path: str, autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer(1)))) as admin:
        get, head = await admin.get(path), await admin.get(path, "HEAD")
    assert (get.status, head.status) == (200, 200)
    assert get.body
    assert head.body == b""
    same = [{name: value for name, value in one.headers.items() if name != "date"} for one in (get, head)]
    assert same[0] == same[1]
    assert get.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "NONSENSE"])
async def test_another_method_is_refused(path: str, method: str, autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer(1)))) as admin:
        found = await admin.get(path, method)
    assert (found.status, found.headers["allow"]) == (405, "GET, HEAD")
    assert found.detail == f"{path} takes GET and HEAD only"


@pytest.mark.parametrize("path", ["/drain", "/reload"])
async def test_what_changes_something_is_a_post(path: str, autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer(1)))) as admin:
        found = await admin.get(path)
    assert (found.status, found.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "//metrics", "/%6detrics", "/../metrics", "/favicon.ico"])
async def test_anything_else_is_404_and_says_what_there_is(path: str, autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer(1)))) as admin:
        found = await admin.get(path)
    assert found.status == 404
    assert "/metrics" in found.detail


@pytest.mark.parametrize(
    ("done", "status", "words"),
    [
        (Reloaded("refused", problems=["F:1: idle: 'x' is no duration", "F:2: port: no"]), 422, "F:1: idle: 'x' is no"),
        (Reloaded("draining"), 409, "draining"),
        (Reloaded("starting"), 503, "starting"),
        (Reloaded("restarting"), 409, "--reload"),
        (None, 503, "does not answer"),
    ],
)
async def test_a_reload_that_changes_nothing_says_why(
    done: Reloaded | None, status: int, words: str, autojump_clock: MockClock
) -> None:
    async with asking(Still(msgspec.structs.replace(picture(answer(1)), reloaded=done))) as admin:
        found = await admin.get("/reload", "POST")
    assert found.status == status
    assert words in found.detail


async def test_a_reload_says_what_has_changed_and_what_needs_a_restart(autojump_clock: MockClock) -> None:
    done = Reloaded("reloaded", {"idle": ("75s", "5s")}, ["port", "queue"], workers=2)
    service = Still(msgspec.structs.replace(picture(answer(1)), reloaded=done))
    async with asking(service, host="a") as admin:
        found = await admin.get("/reload", "POST")
        service.config = {"host": "b"}
        assert (await admin.get("/config")).json == {"host": "b"}
    assert found.status == 200
    expected = {"status": "reloaded", "changed": {"idle": ["75s", "5s"]}, "needs_restart": ["port", "queue"]}
    assert found.json == expected | {"workers": 2}


async def test_a_request_for_another_host_is_refused(autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer(1)))) as admin:
        found = await admin.get("/connections", headers={"host": "evil.example"})
    assert found.status == 421
    assert found.detail


async def test_the_configuration_is_shown(autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer(1))), host="a", idle=float("inf"), uds_mode=0o660) as admin:
        assert (await admin.get("/config")).json == {"host": "a", "idle": "off", "uds_mode": "660"}


async def test_names_of_files_are_shown_that_are_not_utf8(autojump_clock: MockClock) -> None:
    name = os.fsdecode(b"a\xff")
    async with asking(Still(picture(answer(1))), app_dir=name, bind=(f"unix:{name}",)) as admin:
        assert (await admin.get("/config")).json == {"app_dir": r"a\udcff", "bind": [r"unix:a\udcff"]}


async def test_the_routes_of_the_configuration_are_shown(autojump_clock: MockClock) -> None:
    config = ServeConfig(routes=(Route("/events", frozenset(), {"handler": float("inf"), "max_body": 5.0}),))
    async with asking(Still(picture(answer(1))), **msgspec.structs.asdict(config)) as admin:
        shown = (await admin.get("/config")).json
    overrides = {"handler": "off", "max_body": 5.0}
    assert shown["routes"] == [{"path": "/events", "methods": [], "overrides": overrides, "observed": True}]
    assert (shown["admin"], shown["timeouts"]["handler"]) == (None, "off")


async def test_the_metrics_are_of_the_server_and_not_of_the_listener(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(read_header=10.0)) as site, asking(local(site.server)) as admin:
        await crowd(site)
        for _ in range(3):
            found = await admin.get("/metrics")
        text = found.body
    assert checked_by_promtool(text) == ""
    read = samples(text)
    assert read['deadlined_requests_total{code="200",method="GET"}'] == 4
    assert read['deadlined_connections_open{phase="idle"}'] == 3
    assert read['deadlined_connections_open{phase="header"}'] == 2
    assert sum(value for name, value in read.items() if name.startswith("deadlined_connections_open{")) == 5
    assert read["deadlined_connections_accepted_total"] == 5


async def test_a_deadline_that_passes_is_counted(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(read_header=10.0)) as site, asking(local(site.server)) as admin:
        client = await site.connect()
        await client.send(GET[:5])
        await client.end()
        await site.records.ended()
        read = samples((await admin.get("/metrics")).body)
    assert read['deadlined_deadline_expired_total{phase="header"}'] == 1
    assert read['deadlined_connections_closed_total{reason="header_timeout"}'] == 1
    assert read["deadlined_deadline_lateness_seconds_count"] == 1


def ids(found: Response) -> list[int]:
    return [connection["id"] for connection in found.json["connections"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [1, 2, 3, 4, 5]),
        ("?phase=idle", [1, 2, 3]),
        ("?phase=header", [4, 5]),
        ("?phase=body", []),
        ("?sort=-id", [5, 4, 3, 2, 1]),
        ("?sort=age&limit=2", [5, 4]),
        ("?sort=-age&limit=2", [1, 2]),
        ("?sort=left&limit=3", [4, 5, 1]),
        ("?sort=-requests&limit=1", [1]),
        ("?limit=0", []),
        (f"?limit={MOST_SHOWN}", [1, 2, 3, 4, 5]),
    ],
)
async def test_connections_are_filtered_sorted_and_limited(
    query: str, expected: list[int], autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(read_header=10.0, idle=75.0)) as site, asking(local(site.server)) as admin:
        await crowd(site)
        found = await admin.get(f"/connections{query}")
    assert ids(found) == expected
    phase = query.partition("phase=")[2].partition("&")[0]
    assert found.json["matching"] == {"": 5, "idle": 3, "header": 2, "body": 0}[phase]
    assert found.json["open"] == 5


async def test_a_connection_is_described(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=75.0)) as site, asking(local(site.server)) as admin:
        client = await site.connect()
        await client.get()
        await trio.sleep(4)
        (shown,) = (await admin.get("/connections")).json["connections"]
    peer = shown.pop("peer")
    assert peer.startswith("127.0.0.1:")
    assert shown == {"worker": 1, "id": 1, "phase": "idle", "age": 4.0, "left": 72.0, "requests": 1}


@pytest.mark.parametrize(
    "query",
    [
        "phase=nothing",
        "phase=",
        "sort=peer",
        "sort=",
        "sort=--id",
        "limit=x",
        "limit=-1",
        "limit=1001",
        "limit=",
        "limit=99999999999999999999",
        "limit=%D9%A1",
        "other=1",
        "limit=1&limit=2",
        "phase=idle&phase=body",
        "x",
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(query: str, autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer(1)))) as admin:
        found = await admin.get(f"/connections?{query}")
    assert (found.status, bool(found.detail)) == (400, True)


def test_a_query_of_many_fields_is_refused() -> None:
    with pytest.raises(ValueError, match="fields"):
        parse_query("&".join(["limit=1"] * 100))


async def test_statistics_have_all_that_a_page_shows(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=75.0)) as site, asking(local(site.server)) as admin:
        await crowd(site)
        found: dict[str, Any] = (await admin.get("/statistics")).json
    assert found["phases"]["idle"] == 3
    assert found["timers"]["armed"] >= 3
    assert 0 < found["wakes_in"] <= 76
    assert found["totals"]["requests"] == {"GET": {"200": 4}}
    assert [worker["open"] for worker in found["workers"]] == [5]


@pytest.mark.parametrize(
    ("status", "wanted", "code", "told"),
    [
        ("ready", 2, 200, "ready"),
        ("ready", 1, 200, "ready"),
        ("ready", 3, 200, "ready: 2 of 3 processes serve"),
        ("starting", 3, 503, "starting: 2 of 3 processes serve"),
        ("draining", 2, 503, "draining: no new connections are accepted"),
    ],
)
async def test_readyz_says_how_many_processes_serve(
    status: Status, wanted: int, code: int, told: str, autojump_clock: MockClock
) -> None:
    shown = msgspec.structs.replace(picture(answer(), answer()), status=status, wanted=wanted)
    async with asking(Still(shown)) as admin:
        found = await admin.get("/readyz")
    assert (found.status, found.detail if code == 503 else found.body.decode()) == (code, told + "\n" * (code == 200))


async def test_readyz_follows_the_service_and_livez_does_not(autojump_clock: MockClock) -> None:
    async with serving() as site:
        service = local(site.server)
        serving_now, service.serving = service.serving, None
        async with asking(service) as admin:
            starting = await admin.get("/readyz")
            early = await admin.get("/drain", "POST")
            service.serving = serving_now
            ready = await admin.get("/readyz")
            drained = await admin.get("/drain", "POST")
            draining = await admin.get("/readyz")
            again = await admin.get("/drain", "POST")
            alive = await admin.get("/livez")
            scraped = samples((await admin.get("/metrics")).body)
            assert site.server.draining
    assert (starting.status, "starting: 0 of 1" in starting.detail) == (503, True)
    assert (early.status, "starting" in early.detail) == (503, True)
    assert ready.status == 200
    assert (drained.status, drained.json) == (202, {"status": "draining"})
    assert (draining.status, "draining" in draining.detail) == (503, True)
    assert (again.status, alive.status) == (202, 200)
    assert (scraped["deadlined_draining"], scraped["deadlined_ready"]) == (1.0, 0.0)


@pytest.mark.parametrize("what", ["status", "drain", "reload"])
async def test_what_shows_no_counts_does_not_look_at_the_connections(
    what: Literal["status", "drain", "reload"], autojump_clock: MockClock
) -> None:
    async with serving() as site:
        (worker,) = (await local(site.server).ask(Question(what=what))).workers
    assert worker.answer is None


async def test_a_drain_after_which_the_service_would_not_end_is_refused(autojump_clock: MockClock) -> None:
    async with serving() as site:
        service = LocalService(None, lambda: Reloaded("restarting"))
        service.serving = local(site.server).serving
        async with asking(service) as admin:
            refused = await admin.get("/drain", "POST")
            assert (await admin.get("/readyz")).status == 200
            # nor is it if it drains because of an edit: the next process serves then
            service.begin_drain()
            assert (await admin.get("/drain", "POST")).status == 409
    assert (refused.status, "--reload" in refused.detail) == (409, True)


async def state_of(admin: Asker) -> tuple[str, bool]:
    (line,) = (await admin.get("/statistics")).json["workers"]
    return line["state"], line["ready"]


async def test_the_state_of_a_single_process_is_shown(autojump_clock: MockClock) -> None:
    command = Address.parse("127.0.0.1:1")
    proxy = Proxy([command])
    async with serving() as site:
        service = local(site.server)
        serves = service.serving = Serving(site.server, current_host().poller, lambda: 0, proxy.statistics)
        async with asking(service) as admin:
            service.serving = None
            assert await state_of(admin) == ("starting", False)
            service.serving = serves
            assert await state_of(admin) == ("serving", True)
            proxy.set_available(command, False)
            assert await state_of(admin) == ("waiting", False)
            service.begin_drain()
            assert await state_of(admin) == ("draining", False)
    proxy.close()
