"""The time that a client says it waits shortens its handler's deadline, if the operator trusts it."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from deadlined.asgi.budget import time_budget
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Timeouts
from tests.support.serving import Answer, say, serving

INF = math.inf


@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [
        (b"grpc-timeout", b"2H", 7200),
        (b"grpc-timeout", b"3M", 180),
        (b"grpc-timeout", b"4S", 4),
        (b"grpc-timeout", b"1500m", 1.5),
        (b"grpc-timeout", b"250u", 0.00025),
        (b"grpc-timeout", b"99999999n", 0.099999999),
        (b"grpc-timeout", b"0S", 0),
        (b"x-envoy-expected-rq-timeout-ms", b"1500", 1.5),
        (b"x-envoy-expected-rq-timeout-ms", b"0", 0),
        (b"request-timeout", b"7", 7),
        (b"request-timeout", b"0.25", 0.25),
    ],
)
def test_a_budget_in_seconds(name: bytes, value: bytes, seconds: float) -> None:
    assert time_budget([(b"host", b"a"), (name, value)]) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[
            (b"grpc-timeout", value)
            for value in (b"", b"S", b"5", b"-5S", b"1.5S", b"5s", b"123456789S", b"5S ", b"5SS")
        ],
        *[(b"x-envoy-expected-rq-timeout-ms", value) for value in (b"", b"-1", b"1.5", b"1e3", b"1_000", b"9" * 13)],
        *[(b"request-timeout", value) for value in (b"", b"-1", b"1e3", b"inf", b"nan", b"5s", b".5", b"5.", b"1, 2")],
        (b"request-timeout", "٣".encode()),
        (b"timeout", b"5"),
    ],
)
def test_what_is_malformed_is_no_budget(name: bytes, value: bytes) -> None:
    assert time_budget([(name, value)]) == INF


def test_the_shortest_of_several_fields_counts() -> None:
    fields = [
        (b"request-timeout", b"9"),
        (b"grpc-timeout", b"3S"),
        (b"grpc-timeout", b"5S"),
        (b"request-timeout", b"x"),
    ]
    assert time_budget(fields) == 3
    assert time_budget([]) == INF


def request(*fields: bytes) -> bytes:
    return b"\r\n".join([b"GET / HTTP/1.1", b"Host: a", *fields, b"", b""])


async def wait_in_vain(scope: Scope, receive: Receive, send: Send) -> None:
    await trio.sleep(60)
    await say(send)


async def ask(*fields: bytes, trust: bool = True, handler: float = INF) -> tuple[float, Answer]:
    """Return how long a handler of a minute may run for such a request, and its answer."""
    async with (
        serving(wait_in_vain, timeouts=Timeouts(handler=handler), trust_deadline_headers=trust) as served,
        served.client() as client,
    ):
        begun = trio.current_time()
        await client.send(request(*fields))
        answer = await client.answer()
        return trio.current_time() - begun, answer


@pytest.mark.parametrize("field", [b"grpc-timeout: 2S", b"X-Envoy-Expected-Rq-Timeout-Ms: 2000", b"Request-Timeout: 2"])
async def test_a_budget_ends_the_handler_with_504(field: bytes, autojump_clock: MockClock) -> None:
    taken, answer = await ask(field)
    assert (taken, answer.status) == (2.0, 504)


async def test_a_budget_of_nothing_is_504_at_once(autojump_clock: MockClock) -> None:
    taken, answer = await ask(b"grpc-timeout: 0n")
    assert (taken, answer.status) == (0.0, 504)


async def test_a_budget_never_extends_the_servers_deadline(autojump_clock: MockClock) -> None:
    taken, answer = await ask(b"grpc-timeout: 30S", handler=5)
    assert (taken, answer.status) == (5.0, 504)


async def test_a_budget_that_suffices_changes_nothing(autojump_clock: MockClock) -> None:
    taken, answer = await ask(b"grpc-timeout: 61S")
    assert (taken, answer.status) == (60.0, 200)


async def test_nobody_is_trusted_by_default(autojump_clock: MockClock) -> None:
    taken, answer = await ask(b"grpc-timeout: 2S", trust=False)
    assert (taken, answer.status) == (60.0, 200)


async def test_a_budget_is_its_requests_and_not_the_connections(autojump_clock: MockClock) -> None:
    deadlines: list[float] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        deadlines.append(scope["extensions"]["deadlined"]["deadline"] - trio.current_time())
        await trio.sleep(1)
        await say(send)

    async with serving(app, trust_deadline_headers=True) as served, served.client() as client:
        for field in (b"request-timeout: 4", b"request-timeout: soon"):
            await client.send(request(field))
            assert (await client.answer()).status == 200
    assert deadlines == [4.0, INF]


async def test_an_application_can_still_move_its_deadline(autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["deadlined"]["set_handler_deadline"](trio.current_time() + 9)
        await wait_in_vain(scope, receive, send)

    async with serving(app, trust_deadline_headers=True) as served, served.client() as client:
        begun = trio.current_time()
        await client.send(request(b"request-timeout: 4"))
        assert (await client.answer()).status == 504
        assert trio.current_time() - begun == 9
