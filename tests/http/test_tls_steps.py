"""Over TLS, byte by byte: clients that leave at each step, ends that are told, and bytes that lie between."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Exchange, Limits, Phase, Reason
from deadlined.http.secure import Tls
from deadlined.runtime import current_host
from tests.support.handlers import HUGE, slow
from tests.support.http import GET, LAST_GET, Site, answer, echo, endless, only, post, serving, whole_body
from tests.support.net import assert_heap_is_sound, certificates, tcp_pair
from tests.support.tls import ByHand, encrypt

pytestmark = pytest.mark.usefixtures("parser")

BAD = b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n"


async def by_hand(site: Site) -> ByHand:
    return ByHand((await site.connect(tls=False)).conn)


async def connected(site: Site) -> ByHand:
    client = await by_hand(site)
    await client.shake_hands()
    return client


async def until_end(client: ByHand) -> bytes:
    received = b""
    while data := await client.receive():
        received += data
    return received


# clients that leave

STEPS = (
    "before the hello",
    "in the hello",
    "after the hello",
    "after the handshake",
    "in a head",
    "in a body",
    "idle",
    "in a record",
)


async def go_to(client: ByHand, step: str) -> None:
    """Bring a new client to this step."""
    if step in STEPS[:3]:
        await client.conn.send_all(
            {"in the hello": client.hello()[:100], "after the hello": client.hello()}.get(step, b"")
        )
        return
    await client.shake_hands()
    if step == "in a head":
        await client.send(GET[:5])
    elif step == "in a body":
        await client.send(post(10) + b"hello")
    elif step == "idle":
        await client.send(GET)
        assert (await client.receive()).startswith(b"HTTP/1.1 200 ")
    elif step == "in a record":
        await client.conn.send_all(encrypt(client.core, GET)[:20])


@pytest.mark.parametrize("leave", ["eof", "close", "reset", "close_notify"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_client_that_leaves_at_any_step_ends_one_connection(
    step: str, leave: str, autojump_clock: MockClock
) -> None:
    before = len(current_host().poller._descs)
    async with serving(echo, tls=True) as site:
        client = await by_hand(site)
        await go_to(client, step)
        await wait_all_tasks_blocked()
        if leave == "reset":
            client.conn.abort()
        elif leave == "close":
            client.conn.close()
        else:
            if leave == "close_notify":
                client.core.end()
                await client.conn.send_all(client.core.data_to_send())
            await client.conn.send_eof()
        record = await site.ended()
        # what the server has said lies unread in the socket that is closed, which makes the close a reset
        resets = {"reset", "close"} if step not in ("before the hello", "in the hello", "idle") else {"reset"}
        expected = {Reason.CLIENT_RESET} if leave in resets else {Reason.CLIENT_CLOSED}
        if leave == "close":
            expected |= {Reason.CLIENT_CLOSED}
        if leave == "close_notify" and step == "in a record":
            # in the middle of a record it is garbage
            expected = {Reason.CLIENT_RESET, Reason.CLIENT_CLOSED}
        assert record.reason in expected
        assert trio.current_time() == 0.0
        other = await site.connect()
        assert (await other.get()).status == 200
        assert_heap_is_sound()
        assert site.server.statistics().open == 1
    client.conn.close()
    # the listener and the clients are gone
    assert len(current_host().poller._descs) <= before


@pytest.mark.parametrize("ends", ["close_notify", "FIN", "both"])
async def test_a_half_closed_client_still_gets_its_response(ends: str, autojump_clock: MockClock) -> None:
    """A FIN looks like that of a client that has left, for which a handler that sleeps is cancelled by default."""
    async with serving(slow, tls=True, cancel_on_disconnect=ends == "close_notify") as site:
        client = await connected(site)
        await client.send(GET)
        if ends != "FIN":
            client.core.end()
            await client.conn.send_all(client.core.data_to_send())
        if ends != "close_notify":
            await client.conn.send_eof()
        assert (await client.receive()).startswith(b"HTTP/1.1 200 ")
        assert await site.reason() is Reason.CLIENT_CLOSED


async def test_a_reset_in_the_middle_of_a_response_ends_one_connection(autojump_clock: MockClock) -> None:
    async with serving(endless, tls=True) as site:
        client = await connected(site)
        await client.send(GET)
        assert await client.receive()
        await wait_all_tasks_blocked()
        client.conn.abort()
        assert await site.reason() is Reason.CLIENT_RESET


# every end is told

ENDS: dict[str, tuple[bytes, bytes, Reason]] = {
    "asked for": (LAST_GET, b"HTTP/1.1 200 ", Reason.DONE),
    "refused": (BAD, b"HTTP/1.1 400 ", Reason.PROTOCOL_ERROR),
    "refused in a body": (post(5000), b"HTTP/1.1 413 ", Reason.PROTOCOL_ERROR),
    "no head": (GET[:5], b"HTTP/1.1 408 ", Reason.HEADER_TIMEOUT),
    "nothing": (b"", b"", Reason.HEADER_TIMEOUT),
    "no body": (post(5), b"HTTP/1.1 408 ", Reason.BODY_RATE),
    "idle": (GET, b"HTTP/1.1 200 ", Reason.IDLE_TIMEOUT),
}


@pytest.mark.parametrize(("data", "told", "reason"), ENDS.values(), ids=ENDS)
async def test_every_end_is_a_close_notify(data: bytes, told: bytes, reason: Reason, autojump_clock: MockClock) -> None:
    timeouts = only(read_header=10, body_grace=10, idle=10)
    async with serving(echo, timeouts, Limits(max_body=1000), tls=True) as site:
        client = await connected(site)
        if data:
            await client.send(data)
        received = await until_end(client)
        assert received.startswith(told)
        assert received.count(b"HTTP/1.1 ") == (1 if told else 0)
        assert not client.core.truncated
        client.conn.close()
        ended = await site.reason()
        assert ended is reason or told.startswith(b"HTTP/1.1 413")


async def test_a_drain_ends_idle_connections_with_a_close_notify(autojump_clock: MockClock) -> None:
    async with serving(tls=True, timeouts=only(drain=30)) as site:
        client = await connected(site)
        await client.send(GET)
        assert await client.receive()
        site.server.shutdown()
        assert await until_end(client) == b""
        assert not client.core.truncated


# OpenSSL sends no alert to a peer whose version it cannot read
@pytest.mark.parametrize(
    ("data", "alert"),
    [(b"\x16\x03\x01\x00\x05nonsense", 7), (b"\x16" * 200, 0), (b"\x16" + bytes(20_000), 0)],
)
async def test_a_refused_handshake_is_told_by_an_alert_and_said_in_the_log(
    data: bytes, alert: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "deadlined.http")
    async with serving(tls=True) as site:
        client = await site.connect(tls=False)
        await client.send(data)
        received = await client.rest()
        # one record: an alert, fatal; not a reset in any case
        assert len(received) == alert
        assert not received or (received[:1], received[5:6]) == (b"\x15", b"\x02")
        client.conn.close()
        assert await site.reason() is Reason.PROTOCOL_ERROR
        (line,) = [record.message for record in caplog.records if "no TLS with 127.0.0.1:" in record.message]
        assert "TLS has failed: " in line


@pytest.mark.parametrize("before", [b"", GET, post(10) + b"hello"], ids=["new", "idle", "in a body"])
async def test_a_record_that_was_changed_ends_the_connection_and_is_said_in_the_log(
    before: bytes, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "deadlined.http")
    async with serving(echo, tls=True) as site:
        client = await connected(site)
        if before:
            await client.send(before)
            await wait_all_tasks_blocked()
        record = encrypt(client.core, b"hello")
        await client.conn.send_all(record[:-1] + bytes([record[-1] ^ 1]))
        assert await site.reason() is Reason.CLIENT_RESET
        (line,) = [record.message for record in caplog.records if "no TLS any more with " in record.message]
        assert "a record was changed on its way" in line
        # the client is told by an alert
        with pytest.raises(trio.BrokenResourceError, match="bad record mac"):
            await until_end(client)


async def test_a_handshake_that_trickles_is_cut_on_time(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(handshake=10), tls=True) as site:
        client = await by_hand(site)
        hello = client.hello()
        for i in range(10):
            await client.conn.send_all(hello[i : i + 1])
            await trio.sleep(1)
        record = await site.ended()
        assert (record.reason, record.elapsed) == (Reason.HANDSHAKE_TIMEOUT, 10.0)


async def test_a_handshake_that_trickles_in_time_is_done(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(handshake=1000), tls=True) as site:
        client = await by_hand(site)
        for byte in client.hello():
            await client.conn.send_all(bytes([byte]))
            await wait_all_tasks_blocked()
        await client.finish()
        for byte in encrypt(client.core, GET):
            await client.conn.send_all(bytes([byte]))
            await wait_all_tasks_blocked()
        assert (await client.receive()).startswith(b"HTTP/1.1 200 ")


# bytes that lie between TLS and HTTP


async def test_requests_that_come_in_one_record_or_one_segment_are_all_answered(autojump_clock: MockClock) -> None:
    async with serving(tls=True) as site:
        client = await connected(site)
        await client.send(GET * 3)
        await client.conn.send_all(b"".join(encrypt(client.core, GET) for _ in range(3)))
        received = b""
        while received.count(b"HTTP/1.1 200 ") < 6:
            received += await client.receive()
        await wait_all_tasks_blocked()
        assert {info.phase for info in site.server.connections()} == {Phase.IDLE}


async def test_the_beginning_of_a_record_behind_a_request_is_not_forgotten(autojump_clock: MockClock) -> None:
    async with serving(tls=True, timeouts=only(idle=10)) as site:
        client = await connected(site)
        for length in (1, 3, 5, 20):
            first, second = encrypt(client.core, GET), encrypt(client.core, GET)
            await client.conn.send_all(first + second[:length])
            assert (await client.receive()).startswith(b"HTTP/1.1 200 ")
            await trio.sleep(5)
            await client.conn.send_all(second[length:])
            assert (await client.receive()).startswith(b"HTTP/1.1 200 ")
        assert await until_end(client) == b""
        assert await site.reason() is Reason.IDLE_TIMEOUT


async def test_an_end_that_comes_with_a_request_is_seen_after_the_answer(autojump_clock: MockClock) -> None:
    async with serving(tls=True) as site:
        client = await connected(site)
        data = encrypt(client.core, GET)
        client.core.end()
        await client.conn.send_all(data + client.core.data_to_send())
        assert (await client.receive()).startswith(b"HTTP/1.1 200 ")
        assert await client.receive() == b""
        assert (await site.reason(), trio.current_time()) == (Reason.CLIENT_CLOSED, 0.0)


# readiness beats expiry


@asynccontextmanager
async def blocked_response(clock: MockClock) -> AsyncIterator[tuple[Site, ByHand, Blocker]]:
    blocker = Blocker(clock)
    async with serving(blocker, only(write_grace=10), tls=True) as site:
        client = await connected(site)
        await client.send(GET.replace(b"/", b"/huge", 1))
        await wait_all_tasks_blocked()
        yield site, client, blocker


class Blocker:
    """A handler that answers /huge with HUGE bytes; asked for /block it reads from `client` and blocks the loop."""

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self.client: ByHand | None = None
        self.received = 0

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.target == b"/block":
            if self.client is not None:
                self._read(self.client)
            self._clock.jump(700)
        await whole_body(exchange)
        await answer(exchange, bytes(HUGE if exchange.request.target == b"/huge" else 1))

    def _read(self, client: ByHand) -> None:
        for _ in range(100):
            try:
                client.core.feed(client.conn.socket.recv(1 << 20))
            except BlockingIOError:
                continue
            while data := client.core.read(1 << 20):
                self.received += len(data)


@pytest.mark.parametrize("reads", [True, False], ids=["reads", "does not"])
async def test_a_client_that_took_bytes_while_the_loop_was_blocked_is_not_cut(
    reads: bool, autojump_clock: MockClock
) -> None:
    async with blocked_response(autojump_clock) as (site, client, blocker):
        if reads:
            blocker.client = client
        other = await site.connect()
        assert (await other.get(GET.replace(b"/", b"/block", 1))).status == 200
        if not reads:
            assert await site.reason() is Reason.WRITE_TIMEOUT
            return
        while blocker.received < HUGE:
            blocker.received += len(await client.receive())
        assert site.records.connections == []


# what is sent


def without_first(parts: list[memoryview], size: int) -> list[memoryview]:
    rest = []
    for part in parts:
        rest.append(part[size:])
        size = max(size - len(part), 0)
    return [part for part in rest if part]


async def test_parts_arrive_in_order_and_are_not_copied_whole() -> None:
    """A client that reads slowly would make the server copy a large body again and again."""
    # no two batches are alike
    whole = b"head" + bytes(range(251)) * (HUGE // 251) + b"end"
    parts = [memoryview(whole)[:4], memoryview(whole)[4:-3], memoryview(whole)[-3:]]
    received = 0
    async with tcp_pair() as (near, far), trio.open_nursery() as nursery:
        client, server = ByHand(near), Tls(far, certificates().server, b"")
        nursery.start_soon(server.handshake, float("inf"))
        await client.shake_hands()
        await wait_all_tasks_blocked()
        tracemalloc.start()
        try:
            while received < len(whole):
                taken = server.offer_parts(list(parts))
                parts = without_first(parts, taken)
                if not taken:
                    piece = await client.receive()
                    assert piece == whole[received : received + len(piece)]
                    received += len(piece)
            assert (parts, server.sent, server.ahead) == ([], len(whole), 0)
            assert tracemalloc.get_traced_memory()[1] < HUGE / 4
        finally:
            tracemalloc.stop()
