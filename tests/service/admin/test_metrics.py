"""The metrics: what promtool and the official parsers say to them, and that they are what was counted."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from trio.testing import MockClock

from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Exchange, Limits, Phase, Reason
from deadlined.http.counts import METHODS, OTHER
from deadlined.proxy import Address, Proxy
from deadlined.runtime import current_host
from deadlined.service import ServeConfig
from deadlined.service.admin.gather import Serving
from deadlined.service.admin.hosting import build_of
from deadlined.service.admin.metrics import Exposition
from deadlined.service.admin.picture import Picture, UpstreamGauges, Worker
from tests.support.admin import BUILD, answer, asking, checked_by_promtool, counters, local, picture, samples
from tests.support.http import GET, only, post, serving
from tests.support.websocket import accepting, handler, raw

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"

OPENMETRICS = "application/openmetrics-text; version=1.0.0,text/plain;version=0.0.4;q=0.5"

# names that others rely on, with their labels
PINNED = {
    "deadlined_connections_open": {"phase"},
    "deadlined_connections_closed_total": {"reason"},
    "deadlined_deadline_expired_total": {"phase"},
    "deadlined_deadline_lateness_seconds_bucket": {"le"},
    "deadlined_deadline_lateness_seconds_count": set(),
    "deadlined_deadline_lateness_seconds_sum": set(),
    "deadlined_timers": {"state"},
    "deadlined_timer_resets_total": set(),
    "deadlined_requests_total": {"method", "code"},
    "deadlined_request_duration_seconds_bucket": {"le"},
    "deadlined_request_duration_seconds_count": set(),
    "deadlined_request_duration_seconds_sum": set(),
    "deadlined_build_info": {*BUILD},
    "deadlined_worker_up": {"worker"},
}


def rendered(shown: Picture, accept: str = "") -> bytes:
    return Exposition(BUILD).render(shown, accept)[0]


def test_the_pinned_names_have_their_labels() -> None:
    found = {
        sample.name: set(sample.labels)
        for family in prometheus(rendered(picture(answer(3))).decode())
        for sample in family.samples
    }
    assert {name: found.get(name) for name in PINNED} == PINNED


def test_promtool_has_no_complaint() -> None:
    assert checked_by_promtool(rendered(picture(answer(3), None, retired=counters(1)))) == ""


def test_promtool_would_complain() -> None:
    assert "help" in checked_by_promtool(b"# TYPE deadlined_x counter\ndeadlined_x 1\n")


def test_the_parser_of_openmetrics_accepts_it_and_reads_the_same() -> None:
    shown = picture(answer(3), answer(4))
    text = rendered(shown, OPENMETRICS).decode()
    assert text.endswith("# EOF\n")
    families = openmetrics(text)  # type: ignore[no-untyped-call]  # the library's
    read = [(s.name, *sorted(s.labels.items()), s.value) for family in families for s in family.samples]
    plain = prometheus(rendered(shown).decode())
    assert sorted(read) == sorted((s.name, *sorted(s.labels.items()), s.value) for f in plain for s in f.samples)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (OPENMETRICS, "application/openmetrics-text"),
        ("text/plain", "text/plain"),
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("\xff;;q=,", "text/plain"),
    ],
)
def test_the_format_is_what_was_asked_for(accept: str, kind: str) -> None:
    assert Exposition(BUILD).render(picture(answer()), accept)[1].startswith(f"{kind}; version=")


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=x.y.z", "text/plain; version=1.0.0-rc1, text/plain; version="]
)
def test_a_version_that_is_no_version_is_answered_all_the_same(accept: str) -> None:
    assert "; version=" in Exposition(BUILD).render(picture(answer()), accept)[1]


def test_every_family_has_a_help_text_and_a_name_with_its_unit() -> None:
    for family in prometheus(rendered(picture(answer(1))).decode()):
        assert re.fullmatch(r"[A-Z0-9].{20,200}\.", family.documentation), family.name
        assert re.fullmatch(r"(deadlined|process)_[a-z_]+", family.name)
        assert not re.search(r"(milli|micro|_ms|_kb|minutes)", family.name)


def test_processes_are_summed_and_the_dead_stay() -> None:
    found = samples(rendered(picture(answer(3, open_=5), answer(4, open_=6), retired=counters(10))))
    assert found['deadlined_requests_total{code="200",method="GET"}'] == 17
    assert found['deadlined_connections_open{phase="idle"}'] == 11
    assert found["deadlined_connections_max"] == 200
    assert found["deadlined_request_duration_seconds_count"] == 17
    assert found["process_cpu_seconds_total"] == 17.0


def test_an_upstream_is_up_if_every_process_says_so() -> None:
    one, other = answer(3, open_=5), answer(4, open_=6)
    upstream = 'upstream="unix:/a"'
    found = samples(rendered(picture(one, other, retired=counters(10))))
    assert found[f"deadlined_upstream_tries_total{{{upstream}}}"] == 17
    assert found[f'deadlined_upstream_failures_total{{failure="reset",{upstream}}}'] == 17
    assert found[f"deadlined_upstream_active{{{upstream}}}"] == 11
    assert found[f"deadlined_upstream_up{{{upstream}}}"] == 1
    other.gauges.upstreams["unix:/a"] = UpstreamGauges(active=0, idle=0, up=False)
    assert samples(rendered(picture(one, other)))[f"deadlined_upstream_up{{{upstream}}}"] == 0


def test_the_help_of_what_is_counted_at_upstreams_holds_for_raw_connections() -> None:
    helps = re.findall(r"^# HELP (deadlined_upstream_\w+) (.*)$", rendered(picture(answer(3))).decode(), re.MULTILINE)
    counted = {name: text for name, text in helps if "equests" in text}
    assert len(counted) >= 6
    assert {name for name, text in counted.items() if "raw connections" not in text} == set()


def test_without_a_proxy_there_is_nothing_of_upstreams() -> None:
    one = answer(3)
    one.counters.upstreams.clear()
    assert "upstream" not in rendered(picture(one)).decode()


def test_requests_that_run_wait_and_were_refused_are_summed() -> None:
    found = samples(rendered(picture(answer(3, open_=5), answer(4, open_=6), retired=counters(10))))
    assert (found["deadlined_requests_running"], found["deadlined_requests_waiting"]) == (11, 11)
    assert found['deadlined_requests_refused_total{reason="queue_full"}'] == 17


async def test_a_process_tells_what_its_limit_of_requests_does(autojump_clock: MockClock) -> None:
    async def held(_: Exchange) -> None:
        await trio.sleep_forever()

    async with serving(held, only(request_queue=0), Limits(max_running=1)) as site:
        await (await site.connect()).send(GET)
        await trio.sleep(1)
        assert (await (await site.connect()).get()).status == 503
        found = Serving(site.server, current_host().poller, lambda: 0).last_answer(1)
    assert (found.gauges.running, found.gauges.queued) == (1, 0)
    assert found.counters.refused == {"queue_full": 0, "queue_timeout": 1, "client_left": 0}


async def test_a_connection_that_closes_is_no_request_in_flight(autojump_clock: MockClock) -> None:
    async with serving() as site:
        assert (await (await site.connect()).get(post(1_000_000))).status == 200
        await trio.sleep(1)
        found = samples(rendered(picture(Serving(site.server, current_host().poller, lambda: 0).last_answer(1))))
    assert found["deadlined_requests_in_flight"] == 0
    assert {
        name: number for name, number in found.items() if name.startswith("deadlined_connections_open{") and number
    } == {'deadlined_connections_open{phase="closing"}': 1}


async def test_a_websocket_is_no_request_in_flight_also_while_its_client_does_not_read() -> None:
    async def send_much(_: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        while True:
            await send({"type": "websocket.send", "bytes": bytes(65536)})

    async with serving(handler(send_much)) as site:
        await raw(site)
        with trio.fail_after(30):
            while not site.server.connections(Phase.WRITE):
                await trio.lowlevel.checkpoint()
        found = samples(rendered(picture(Serving(site.server, current_host().poller, lambda: 0).last_answer(1))))
        site.hang_up()
        await site.ended()
    assert found['deadlined_connections_open{phase="write"}'] == 1
    assert found["deadlined_requests_in_flight"] == 0


async def test_a_deadline_is_shown_whatever_the_phase_that_it_has_ended(autojump_clock: MockClock) -> None:
    async with serving() as site:
        for phase in Phase:
            site.server._settings.counts.expiry(phase, 0.0)
        found = Serving(site.server, current_host().poller, lambda: 0).last_answer(1)
    shown = samples(rendered(picture(found)))
    assert {shown[f'deadlined_deadline_expired_total{{phase="{phase}"}}'] for phase in Phase} == {1}


async def test_an_upstream_may_have_a_path_that_is_not_utf8(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = Proxy([Address.parse(os.fsdecode(b"unix:/run/\xff"))])
    async with serving() as site:
        service = local(site.server)
        service.serving = Serving(site.server, current_host().poller, lambda: 0, proxy.statistics)
        async with asking(service) as admin:
            assert r"unix:/run/\\udcff" in (await admin.get("/metrics")).body.decode()
            assert [*(await admin.get("/statistics")).json["totals"]["upstreams"]] == [r"unix:/run/\udcff"]
        assert r"unix:/run/\\udcff" in service.last_reply(1).decode()
        # another error does not keep the process from ending in order
        monkeypatch.setattr(Serving, "last_answer", lambda *_: 1 / 0)
        assert service.last_reply(1) == b""
    assert "cannot tell the supervisor the last counts" in caplog.text
    proxy.close()


def test_without_a_limit_of_requests_there_is_nothing_of_turns() -> None:
    one = answer(3)
    one.counters.refused.clear()
    assert not re.search("requests_(running|waiting|refused)", rendered(picture(one)).decode())


def test_one_that_did_not_answer_is_down_and_no_counter_goes_back() -> None:
    before = samples(rendered(picture(answer(3), answer(4))))
    hung = picture(answer(3), answer(4))
    hung.workers[1] = msgspec.structs.replace(hung.workers[1], up=False)
    after = samples(rendered(hung))
    assert (after['deadlined_worker_up{worker="0"}'], after['deadlined_worker_up{worker="1"}']) == (1.0, 0.0)
    counted = {name for name in before if re.search(r"_(total|bucket|count|sum)\b", name)}
    assert counted
    assert {name for name in counted if after[name] < before[name]} == set()


def test_a_number_is_up_if_all_that_serve_for_it_have_answered() -> None:
    drains, serves, other = picture(answer(1), answer(1), answer(1)).workers
    drains = msgspec.structs.replace(drains, worker=1, up=False, state="draining")

    def up(*workers: Worker) -> float:
        return samples(rendered(msgspec.structs.replace(picture(), workers=workers)))['deadlined_worker_up{worker="1"}']

    assert up(drains) == 0.0
    assert up(drains, serves) == 1.0
    assert up(serves, msgspec.structs.replace(other, worker=1, up=False)) == 0.0


def test_before_any_process_has_answered_there_is_the_state_alone() -> None:
    found = samples(rendered(picture(None, None)))
    assert found["deadlined_workers"] == 2.0
    assert not any(name.startswith("deadlined_requests") for name in found)


def test_the_parser_that_is_in_use_is_named_and_not_the_option() -> None:
    assert build_of(ServeConfig())["http"] in {"h11", "httptools"}
    assert build_of(ServeConfig(http="h11"))["http"] == "h11"
    assert build_of(ServeConfig(tcp=True))["http"] == ""


def test_a_histogram_is_cumulative() -> None:
    found = samples(rendered(picture(answer(3))))
    assert [found[f'deadlined_request_duration_seconds_bucket{{le="{le}"}}'] for le in ("0.1", "1.0", "+Inf")] == [
        3
    ] * 3


def test_the_documents_list_every_metric_with_its_labels_and_no_other() -> None:
    rows = re.findall(r"^\| `((?:deadlined|process)_\w+)` \|(.*?)\| .* \|$", DOCUMENT.read_text(), re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    rendered_labels: dict[str, set[str]] = {}
    for family in prometheus(rendered(picture(answer(1))).decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rendered_labels[name] = {label for sample in family.samples for label in sample.labels}
    # the labels of the build are many
    assert documented.pop("deadlined_build_info") == {"version"}
    assert rendered_labels.pop("deadlined_build_info") == {*BUILD}
    assert documented == rendered_labels


def test_the_number_of_series_is_bounded() -> None:
    """As many as there can be: every method with every code that anybody uses, for a hundred processes."""
    codes = {str(code): 1 for code in (*range(200, 210), *range(300, 309), *range(400, 432), *range(500, 512))}
    many = counters(
        1,
        requests=dict.fromkeys([*METHODS, OTHER], codes),
        closed={reason.value: 1 for reason in Reason},
        expired={phase.value: 1 for phase in Phase},
    )
    found = samples(rendered(picture(*[answer(1)] * 100, retired=many)))
    assert len(found) < len(codes) * (len(METHODS) + 1) + 400
