"""What a server counts: requests by method and status, their durations, deadlines that passed, and bytes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from deadlined.http import Exchange, Phase, Reason
from deadlined.http.counts import METHODS, OTHER, Counts, Histogram
from deadlined.runtime import current_host
from tests.support.http import CHUNKED_POST, GET, LAST_GET, answer, only, post, serving


def ask(method: str) -> bytes:
    return f"{method} / HTTP/1.1\r\nhost: x\r\n\r\n".encode()


async def late(exchange: Exchange) -> None:
    """Answer after two seconds, with the status that the path names."""
    await trio.sleep(2)
    await answer(exchange, status=int(exchange.request.target[1:] or b"200"))


async def test_requests_are_counted_by_method_and_status(autojump_clock: MockClock) -> None:
    async with serving(late) as site:
        client = await site.connect()
        for _ in range(3):
            await client.get()
        await client.get(b"GET /404 HTTP/1.1\r\nhost: x\r\n\r\n")
        await client.get(b"PUT /201 HTTP/1.1\r\nhost: x\r\n\r\n")
        found = site.server.statistics()
    assert found.answered == {("GET", 200): 3, ("GET", 404): 1, ("PUT", 201): 1}
    assert found.requests == 5


async def test_a_method_that_a_client_makes_up_is_no_series_of_its_own(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        for number in range(50):
            await client.get(ask(f"X{number}"))
        for method in sorted(METHODS - {"CONNECT", "HEAD"}):
            await client.get(ask(method))
        answered = site.server.statistics().answered
    assert answered[OTHER, 200] == 50
    assert {method for method, _ in answered} == {OTHER, *METHODS} - {"CONNECT", "HEAD"}


@pytest.mark.parametrize(
    ("request_", "status"),
    [(b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nx: " + bytes(20000).replace(b"\0", b"a"), 431)],
    ids=["invalid", "too large"],
)
async def test_a_refused_request_is_counted_as_other(request_: bytes, status: int, autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        await client.send_what_is_taken(request_)
        await client.end()
        await site.records.ended()
        found = site.server.statistics()
    assert found.answered == {(OTHER, status): 1}
    assert (found.requests, sum(found.durations.counts)) == (0, 0)


async def test_what_the_server_answers_in_place_of_the_handler_is_counted_with_its_method(
    autojump_clock: MockClock,
) -> None:
    async with serving(late, only(handler=1.0)) as site:
        client = await site.connect()
        await client.get(post(0))
        await client.end()
        await site.records.ended()
        found = site.server.statistics()
    assert found.answered == {("POST", 504): 1}
    assert found.expired == {"handler": 1}


async def test_a_request_that_was_not_answered_has_status_0(autojump_clock: MockClock) -> None:
    async with serving(late) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(1)
        client.reset()
        await site.records.ended()
        assert site.server.statistics().answered == {("GET", 0): 1}


async def test_durations_are_from_the_end_of_the_head_to_the_end_of_the_request(autojump_clock: MockClock) -> None:
    async with serving(late) as site:
        client = await site.connect()
        await client.send(GET[:5])
        await trio.sleep(100)
        await client.get(GET[5:])
        found = site.server.statistics().durations
    assert found.sum == pytest.approx(2.0)
    assert dict(zip((*found.bounds, math.inf), found.counts, strict=True))[2.5] == 1
    assert sum(found.counts) == 1


@pytest.mark.parametrize(
    ("timeouts", "sent", "phase", "reason"),
    [
        ({"read_header": 1.0}, GET[:5], "header", Reason.HEADER_TIMEOUT),
        ({"idle": 1.0}, GET, "idle", Reason.IDLE_TIMEOUT),
        ({"body_grace": 1.0}, CHUNKED_POST, "body", Reason.BODY_RATE),
    ],
    ids=["header", "idle", "body"],
)
async def test_a_deadline_that_ends_a_connection_is_counted_by_its_phase(
    timeouts: dict[str, float], sent: bytes, phase: str, reason: Reason, autojump_clock: MockClock
) -> None:
    async def read_and_answer(exchange: Exchange) -> None:
        while await exchange.receive():
            continue
        await answer(exchange)

    async with serving(read_and_answer, only(**timeouts)) as site:
        client = await site.connect()
        await client.send(sent)
        await client.end()
        await site.records.ended()
        found = site.server.statistics()
    assert (found.expired, found.reasons) == ({phase: 1}, {reason: 1})
    # virtual time is never late
    assert (found.lateness.counts[0], found.lateness.sum) == (1, 0.0)


async def test_an_end_without_a_deadline_is_no_expiry(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        await client.get(LAST_GET)
        await site.records.ended()
        found = site.server.statistics()
    assert (found.expired, sum(found.lateness.counts)) == ({}, 0)


async def test_bytes_of_open_and_ended_connections_are_summed(autojump_clock: MockClock) -> None:
    async with serving() as site:
        first, second = await site.connect(), await site.connect()
        await first.get(LAST_GET)
        await first.end()
        ended = await site.records.ended()
        before = site.server.statistics()
        assert (before.received, before.sent) == (ended.received, ended.sent)
        await second.get(GET)
        after = site.server.statistics()
        assert after.received == before.received + len(GET)
        assert after.sent > before.sent
        second.reset()
        await site.records.ended(2)
        last = site.server.statistics()
    assert (last.received, last.sent) == (after.received, after.sent)


async def test_resets_of_deadlines_are_counted_and_stay_when_the_connection_is_gone(autojump_clock: MockClock) -> None:
    async with serving() as site:
        poller = current_host().poller
        client = await site.connect()
        await client.get()
        before = poller.statistics().resets
        client.conn.set_deadline(trio.current_time() + 10)
        client.conn.set_read_deadline(trio.current_time() + 20)
        client.conn.set_deadline(math.inf)
        open_ = poller.statistics().resets
        assert open_ == before + 5
        await client.conn.aclose()
        await site.records.ended()
        assert poller.statistics().resets >= open_


def test_a_request_that_changes_the_protocol_has_no_duration() -> None:
    counts = Counts()
    counts.request("GET", 101, 3600.0)
    assert (counts.requests(), sum(counts.durations.snapshot().counts)) == ({("GET", 101): 1}, 0)


@given(st.lists(st.floats(0.0, 1e6)))
def test_an_observation_is_counted_in_the_first_interval_that_reaches_it(values: list[float]) -> None:
    bounds = [0.1, 1.0, 10.0]
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    found = histogram.snapshot()
    limits = [-math.inf, *bounds, math.inf]
    expected = [sum(low < value <= high for value in values) for low, high in itertools.pairwise(limits)]
    assert (list(found.bounds), list(found.counts)) == (bounds, expected)
    assert found.sum == pytest.approx(sum(values))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [1, 2, 3]),
        ({"phase": Phase.IDLE}, [1, 2]),
        ({"sort": "age"}, [3, 2, 1]),
        ({"sort": "requests", "descending": True}, [2, 1, 3]),
        ({"sort": "left"}, [3, 1, 2]),
        ({"sort": "left", "descending": True, "limit": 2}, [2, 1]),
        ({"limit": 0}, []),
        ({"limit": 99, "phase": Phase.BODY}, []),
    ],
    ids=str,
)
async def test_connections_are_listed_as_asked(
    asked: dict[str, Any], expected: list[int], autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(read_header=10.0, idle=75.0)) as site:
        for requests in (1, 2):
            client = await site.connect()
            for _ in range(requests):
                await client.get()
            await trio.sleep(1)
        await (await site.connect()).send(GET[:5])
        await trio.sleep(1)
        assert [info.id for info in site.server.connections(**asked)] == expected
