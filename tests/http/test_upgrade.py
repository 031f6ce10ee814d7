"""A connection that is handed over to another protocol: any one, here one that answers each line with its length."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Disconnected, Exchange, Reason, ResponseError
from deadlined.http.seams import ExchangeHost, Upgraded
from deadlined.http.state import CLOSED, RUNNING, UNATTENDED, UPGRADED
from tests.support.builds import interpreted_only
from tests.support.http import Client, Site, answer, only, serving

pytestmark = [pytest.mark.usefixtures("parser"), interpreted_only]

INF = float("inf")

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: lengths\r\n\r\n"
HEAD = b"HTTP/1.1 101 Switching Protocols\r\n"


class Lengths(Upgraded):
    """Answers each line with its length. An empty line ends the connection."""

    def __init__(self) -> None:
        self.host: ExchangeHost | None = None
        self.calls: list[str] = []
        self.is_full = False

    def began(self, host: ExchangeHost) -> None:
        self.host = host

    @property
    def full(self) -> bool:
        return self.is_full

    @property
    def deadline(self) -> float:
        return INF

    def received(self, data: bytes) -> bool:
        assert self.host is not None
        if not data:
            self.calls.append("end")
            self.host.end_upgraded(Reason.CLIENT_CLOSED, 0.0, False)
            return False
        for line in data.splitlines():
            if not line:
                self.host.end_upgraded(Reason.DONE, 0.0, False)
                return False
            self.host.output.append(b"%d\n" % len(line))
        self.host.flush_soon(False)
        return False

    def read_deadline_moved(self, when: float) -> None:
        self.calls.append(f"read by {when}")

    def handler_left(self, failed: bool) -> None:
        self.calls.append("failed" if failed else "left")

    def handler_expired(self, lateness: float) -> None:
        assert self.host is not None
        self.calls.append("expired")
        self.host.end_upgraded(Reason.HANDLER_TIMEOUT, lateness, False)

    def output_sent(self) -> None:
        self.calls.append("sent")

    def drain(self) -> None:
        self.calls.append("drain")

    @property
    def ending(self) -> bool:
        return False

    @property
    def closed_by_handler(self) -> bool:
        return False

    def ended(self, reason: Reason) -> None:
        self.calls.append(f"ended {reason}")


async def handed_over(site: Site, protocol: Lengths, early: bytes = b"") -> Client:
    client = await site.connect()
    await switched(client, early)
    return client


async def switched(client: Client, early: bytes) -> None:
    await client.send(REQUEST + early)
    received = b""
    while b"\r\n\r\n" not in received:
        received += await client.receive()
    assert received.startswith(HEAD)
    assert b"connection: Upgrade\r\nupgrade: lengths\r\n" in received
    client._left = received.partition(b"\r\n\r\n")[2]


async def upgrading(exchange: Exchange, protocol: Lengths) -> None:
    assert exchange.request.upgrade == b"lengths"
    await exchange.upgrade(protocol, [(b"upgrade", b"lengths")])


async def test_a_protocol_has_the_connection_with_and_without_its_handler(autojump_clock: MockClock) -> None:
    protocol = Lengths()

    async def handle(exchange: Exchange) -> None:
        await upgrading(exchange, protocol)
        exchange.set_read_deadline(5.0)
        await trio.sleep(10)

    async with serving(handle, only(handler=3)) as site:
        client = await handed_over(site, protocol, b"early\n")
        assert await client.receive() == b"5\n"
        (connection,) = site.server._connections
        await wait_all_tasks_blocked()
        assert (connection.state, connection.attendance) == (UPGRADED, RUNNING)
        await trio.sleep(20)
        assert (connection.state, connection.attendance) == (UPGRADED, UNATTENDED)
        await client.send(b"late\n")
        assert await client.receive() == b"4\n"
        await client.send(b"\n")
        assert await client.rest() == b""
        assert await site.reason() is Reason.DONE
        assert connection.state == CLOSED
        (record,) = site.records.requests
    assert (record.status, record.reason) == (101, Reason.DONE)
    assert protocol.calls == ["read by 5.0", "left", "ended done"]


async def test_a_handler_that_fails_is_told_to_the_protocol_once() -> None:
    protocol = Lengths()

    async def handle(exchange: Exchange) -> None:
        await upgrading(exchange, protocol)
        raise ValueError("a mistake of the handler")

    async with serving(handle) as site:
        client = await handed_over(site, protocol)
        await client.send(b"abc\n")
        assert await client.receive() == b"3\n"
        client.reset()
        assert await site.reason() is Reason.CLIENT_RESET
    assert protocol.calls == ["failed", "left", "ended client_reset"]


@pytest.mark.parametrize("seconds", [1, INF], ids=["fails", "fails once cancelled"])
async def test_what_fails_after_the_response_to_an_earlier_request_does_not_end_the_protocol(
    seconds: float, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind a proxy that request may be another client's."""
    protocol = Lengths()

    async def fail() -> None:
        try:
            await trio.sleep(seconds)
        finally:
            raise ValueError("a mistake of the handler")

    async def handle(exchange: Exchange) -> None:
        if exchange.request.upgrade:
            await upgrading(exchange, protocol)
            await trio.sleep_forever()
        await answer(exchange)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)

    async with serving(handle, only(handler=3)) as site:
        client = await site.connect()
        await client.get()
        await switched(client, b"")
        await trio.sleep(5)
        assert "GET / failed" in caplog.text
        assert protocol.calls == []
        await client.send(b"abc\n")
        assert await client.receive() == b"3\n"


async def test_a_full_protocol_is_not_given_more_until_it_asks(autojump_clock: MockClock) -> None:
    protocol = Lengths()

    async def handle(exchange: Exchange) -> None:
        await upgrading(exchange, protocol)

    async with serving(handle) as site:
        client = await handed_over(site, protocol)
        protocol.is_full = True
        await client.send(b"abc\n")
        with trio.move_on_after(10) as scope:
            await client.receive()
        assert scope.cancelled_caught
        protocol.is_full = False
        assert protocol.host is not None
        protocol.host.read_on()
        assert await client.receive() == b"3\n"


@pytest.mark.parametrize("unread", [b"", b"abc\n"], ids=["", "with bytes"])
async def test_a_reset_is_noticed_while_the_protocol_is_full(unread: bytes, autojump_clock: MockClock) -> None:
    protocol = Lengths()

    async def handle(exchange: Exchange) -> None:
        await upgrading(exchange, protocol)

    async with serving(handle) as site:
        client = await handed_over(site, protocol)
        protocol.is_full = True
        if unread:
            await client.send(unread)
            await wait_all_tasks_blocked()
        client.reset()
        with trio.fail_after(10):
            assert await site.reason() is Reason.CLIENT_RESET
    assert protocol.calls == ["left", "ended client_reset"]


async def test_an_end_is_told_after_all_before_it_once_the_protocol_is_not_full(autojump_clock: MockClock) -> None:
    protocol = Lengths()

    async def handle(exchange: Exchange) -> None:
        await upgrading(exchange, protocol)

    async with serving(handle) as site:
        client = await handed_over(site, protocol)
        protocol.is_full = True
        await client.send(b"abc\n")
        await client.conn.send_eof()
        await trio.sleep(10)
        assert protocol.calls == ["left"]
        protocol.is_full = False
        assert protocol.host is not None
        protocol.host.read_on()
        assert await client.rest() == b"3\n"
    assert protocol.calls == ["left", "end", "ended client_closed"]


async def test_the_exchange_is_over_for_http() -> None:
    protocol = Lengths()
    wrong: list[str] = []

    async def handle(exchange: Exchange) -> None:
        await upgrading(exchange, protocol)
        for act in (lambda: exchange.start(200, []), lambda: exchange.try_send(b"x", False)):
            with pytest.raises(ResponseError) as error:
                act()
            wrong.append(str(error.value))
        with pytest.raises(ResponseError):
            await exchange.upgrade(protocol, [])

    async with serving(handle) as site:
        client = await handed_over(site, protocol)
        await client.send(b"\n")
        assert await client.rest() == b""
    assert len(wrong) == 2


async def test_a_request_with_a_body_that_was_not_received_is_not_upgraded() -> None:
    async def handle(exchange: Exchange) -> None:
        with pytest.raises(ResponseError, match="has a body"):
            await exchange.upgrade(Lengths(), [])
        while await exchange.receive():
            continue
        await upgrading(exchange, Lengths())

    async with serving(handle) as site:
        client = await site.connect()
        await client.send(REQUEST.replace(b"\r\n\r\n", b"\r\ncontent-length: 3\r\n\r\nabc"))
        assert (await client.receive()).startswith(HEAD)


async def test_a_client_that_has_left_is_not_upgraded(autojump_clock: MockClock) -> None:
    raised: list[Exception] = []

    async def handle(exchange: Exchange) -> None:
        await exchange.wait_disconnected()
        try:
            await upgrading(exchange, Lengths())
        except Disconnected as error:
            raised.append(error)

    async with serving(handle) as site:
        client = await site.connect()
        await client.send(REQUEST)
        await wait_all_tasks_blocked()
        client.conn.close()
        await site.ended()
        await wait_all_tasks_blocked()
    assert len(raised) == 1


async def test_a_protocol_that_fails_ends_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Lengths):
        def received(self, data: bytes) -> bool:
            raise ValueError("a mistake of the protocol")

    async def handle(exchange: Exchange) -> None:
        await upgrading(exchange, Broken())

    async with serving(handle) as site:
        client = await handed_over(site, Lengths())
        await client.send(b"x")
        assert await client.end() in ("eof", "reset")
        assert await site.reason() is Reason.SERVER_ERROR
        await handed_over(site, Lengths())
    assert "failed inside the server" in caplog.text


async def test_a_drain_is_told(autojump_clock: MockClock) -> None:
    protocol = Lengths()

    async def handle(exchange: Exchange) -> None:
        await upgrading(exchange, protocol)

    async with serving(handle, only(drain=30)) as site:
        await handed_over(site, protocol)
        await wait_all_tasks_blocked()
        site.server.shutdown()
        # which is about idle connections
        site.server.shutdown(0.0)
        assert await site.reason() is Reason.DRAIN_TIMEOUT
    assert protocol.calls == ["left", "drain", "ended drain_timeout"]
