"""Max-Forwards: what is counted down, and what ends at the proxy."""

from __future__ import annotations

import pytest

from tests.support.conformance import Loop, on_each_loop
from tests.support.http import GET, Client
from tests.support.proxy import Guarded, guarding, problem


def asking(method: str, *fields: bytes) -> bytes:
    return b"\r\n".join((method.encode() + b" / HTTP/1.1", b"host: x", b"cookie: secret", *fields, b"", b""))


def with_hops(method: str, *values: bytes) -> bytes:
    return asking(method, *(b"Max-Forwards: " + value for value in values))


async def sent_on(guarded: Guarded, request: bytes) -> list[bytes]:
    """Return the values of Max-Forwards that the upstream gets, which answers."""
    client, peer = await guarded.begin(request)
    head = await peer.answer()
    assert (await client.response()).status == 200
    return [line.partition(b": ")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"max-forwards")]


async def stays_usable(guarded: Guarded, client: Client) -> None:
    """Check that the client is answered on the same connection, and that this is the first request of an upstream."""
    assert guarded.upstream.accepted == 0
    await client.send(GET)
    await (await guarded.upstream.accept()).answer()
    assert (await client.response()).body == b"fine"


@on_each_loop
@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
@pytest.mark.parametrize(
    ("value", "left"),
    [
        *((b"1", b"0"), (b"10", b"9"), (b"007", b"6"), (b"0" * 40 + b"3", b"2")),
        *((b"123456789", b"123456788"), (b"4294967296", b"999999999")),
    ],
)
async def test_it_is_counted_down(loop: Loop, method: str, value: bytes, left: bytes) -> None:
    async with guarding(loop) as guarded:
        assert await sent_on(guarded, with_hops(method, value)) == [left]


@on_each_loop
async def test_it_is_counted_down_without_a_task_and_cannot_be_named_away(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        await client.send(asking("OPTIONS", b"connection: max-forwards", b"max-forwards: 2"))
        assert b"\r\nmax-forwards: 1\r\n" in await peer.answer()
        assert (await client.response()).status == 200


@on_each_loop
@pytest.mark.parametrize(
    "request_",
    [
        *(asking("OPTIONS"), asking("TRACE"), asking("GET")),
        asking("GET", b"connection: max-forwards", b"max-forwards: 1"),
    ],
    ids=["OPTIONS", "TRACE", "GET", "named away"],
)
async def test_none_is_added(loop: Loop, request_: bytes) -> None:
    async with guarding(loop) as guarded:
        assert await sent_on(guarded, request_) == []


@on_each_loop
@pytest.mark.parametrize("values", [(b"0",), (b"5",), (b"x",), (b"1", b"2")])
async def test_in_other_methods_it_means_nothing(loop: Loop, values: tuple[bytes, ...]) -> None:
    async with guarding(loop) as guarded:
        assert await sent_on(guarded, with_hops("GET", *values)) == list(values)


@on_each_loop
@pytest.mark.parametrize("value", [b"0", b"000"])
async def test_an_options_with_0_is_answered_by_the_proxy(loop: Loop, value: bytes) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(with_hops("OPTIONS", value))
        response = await client.response()
        assert (response.status, response.body) == (200, b"")
        assert response.headers["content-length"] == "0"
        assert not {"content-type", "allow"} & set(response.headers)
        await stays_usable(guarded, client)


@on_each_loop
async def test_a_trace_with_0_is_refused_and_reflects_nothing(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(with_hops("TRACE", b"0"))
        response = await client.response()
        assert response.status == 501
        assert b"secret" not in response.body
        await client.send(with_hops("TRACE", b"0"))
        assert await problem(client) == (501, "max_forwards")
        await stays_usable(guarded, client)


@on_each_loop
@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
@pytest.mark.parametrize("values", [(b"",), (b"-1",), (b"+1",), (b"1.0",), (b"1, 2",), (b"1", b"1"), (b"\xb2",)])
async def test_what_is_not_one_number_is_refused(loop: Loop, method: str, values: tuple[bytes, ...]) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(with_hops(method, *values))
        assert await problem(client) == (400, "max_forwards")
        await stays_usable(guarded, client)


@on_each_loop
async def test_an_idle_connection_is_left_alone(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        for value, status in ((b"0", 200), (b"x", 400)):
            await client.send(with_hops("OPTIONS", value))
            assert (await client.response()).status == status
        (statistics,) = guarded.proxy.statistics().upstreams
        assert (statistics.tries, statistics.idle, statistics.active) == (1, 1, 0)
        await client.send(GET)
        await peer.answer()
        assert (await client.response()).body == b"fine"
