"""The end of a connection whose peer may still be sending: it gets the last response, and a bounded time."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Disconnected, Exchange, HttpServer, Limits, Phase, Reason
from deadlined.http.policy import LINGER, LINGER_MOST, LINGER_RATE
from deadlined.http.state import FINISHING
from tests.support.handlers import KIB, never
from tests.support.http import CHUNKED_POST, GET, LAST_GET, Client, Site, answer, hello, only, post, serving
from tests.support.websocket import TEXT, Told, close_frame, frame, handler, raw

BAD = b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n"
BODY = post(KIB * KIB)

# what is sent, and whether the server must wait for a peer that may be sending what nobody reads
ENDS: dict[str, tuple[bytes, int, bool]] = {
    "refused": (BAD, 400, True),
    "a body that is too long": (BODY, 413, True),
    "a head that does not come": (GET[:5], 408, True),
    "a body that does not come": (post(5), 408, True),
    "the limit of requests": (GET, 200, True),
    "asked for by the peer": (LAST_GET, 200, False),
    "asked for by the peer, which goes on": (LAST_GET + GET, 200, True),
}


async def reads_body(exchange: Exchange) -> None:
    while await exchange.receive():
        pass
    await answer(exchange)


async def begin(site: Site, data: bytes, status: int) -> tuple[Client, float]:
    """Send `data`, read the response, and return the client and the time."""
    client = await site.connect()
    assert (await client.get(data)).status == status
    return client, trio.current_time()


@pytest.mark.parametrize(("data", "status", "lingers"), ENDS.values(), ids=ENDS)
async def test_a_peer_that_stays_is_given_a_moment_where_it_may_be_sending(
    data: bytes, status: int, lingers: bool, autojump_clock: MockClock
) -> None:
    async with serving(reads_body, only(read_header=10, body_grace=10), Limits(max_requests=1, max_body=1000)) as site:
        client, told = await begin(site, data, status)
        # our side is ended at once in any case
        assert await client.receive() == b""
        assert trio.current_time() == told
        await site.ended()
        assert trio.current_time() == told + (LINGER if lingers else 0)
        # the record is of the moment in which the reason was known
        assert site.records.connections[0].elapsed == told


@pytest.mark.parametrize("leave", ["close", "eof", "reset"])
@pytest.mark.parametrize(("data", "status", "lingers"), ENDS.values(), ids=ENDS)
async def test_a_peer_that_leaves_ends_it_at_once(
    data: bytes, status: int, lingers: bool, leave: str, autojump_clock: MockClock
) -> None:
    async with serving(reads_body, only(read_header=10, body_grace=10), Limits(max_requests=1, max_body=1000)) as site:
        client, told = await begin(site, data, status)
        if leave == "reset":
            client.reset()
        elif leave == "eof":
            await client.conn.send_eof()
        else:
            client.conn.close()
        await site.ended()
        assert trio.current_time() == told


@pytest.mark.parametrize(
    ("data", "status", "phase"),
    [
        (BAD, 400, Phase.HEADER),
        (GET[:5], 408, Phase.HEADER),
        (post(5), 408, Phase.BODY),
        (GET, 200, Phase.HANDLER),
    ],
    ids=["refused", "no head", "no body", "the limit of requests"],
)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_it_is_shown_as_what_it_is_and_recorded_in_the_phase_in_which_it_has_ended(
    data: bytes, status: int, phase: Phase, tls: bool, autojump_clock: MockClock
) -> None:
    timeouts = only(read_header=10, body_grace=10)
    async with serving(reads_body, timeouts, Limits(max_requests=1, max_body=1000), tls=tls) as site:
        _, told = await begin(site, data, status)
        await trio.sleep(0.5)
        (info,) = site.server.connections(Phase.CLOSING, sort="left")
        assert (info.left, site.server.statistics().phases) == (told + LINGER - trio.current_time(), {Phase.CLOSING: 1})
        await site.ended()
        assert site.records.connections[0].phase is phase


async def test_the_rest_of_a_body_that_is_discarded_for_the_next_request_is_a_body(autojump_clock: MockClock) -> None:
    async with serving(hello, only(body_grace=10)) as site:
        client, _ = await begin(site, post(5), 200)
        await trio.sleep(1)
        (info,) = site.server.connections()
        assert (info.phase, info.left) == (Phase.BODY, 9.0)
        await client.send(b"hello")
        await wait_all_tasks_blocked()
        assert site.server.statistics().phases == {Phase.IDLE: 1}


async def keep_sending(client: Client, piece: int, every: float) -> float:
    """Send until it fails; return when that was."""
    try:
        while True:
            await client.send(bytes(piece))
            await trio.sleep(every)
    except trio.BrokenResourceError:
        return trio.current_time()


@pytest.mark.parametrize(
    ("piece", "every", "seconds"),
    [
        (1, 0.1, LINGER + 21 / LINGER_RATE),
        (1000, 0.1, LINGER + 24_000 / LINGER_RATE),
        (200 * KIB, 0.5, LINGER_MOST),
        (64 * KIB, 0, LINGER),
    ],
    ids=["a trickle", "a stream", "much", "a flood"],
)
async def test_a_peer_that_keeps_sending_is_cut_in_the_end(
    piece: int, every: float, seconds: float, autojump_clock: MockClock
) -> None:
    """However much comes: after 64 MiB the server stops reading, so that a flood fills the kernel's buffers. (A server
    that reads on is busy for ever, and virtual time stands still.)"""
    async with serving(reads_body, limits=Limits(max_body=1000)) as site:
        client, told = await begin(site, BODY, 413)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_sending, client, piece, every)
            assert await site.reason() is Reason.PROTOCOL_ERROR
            assert trio.current_time() == pytest.approx(told + seconds)
            nursery.cancel_scope.cancel()


async def test_a_peer_that_has_sent_much_and_then_is_silent_is_cut_soon(autojump_clock: MockClock) -> None:
    async with serving(reads_body, limits=Limits(max_body=1000)) as site:
        client, told = await begin(site, BODY, 413)
        await trio.sleep(1)
        for _ in range(4 * LINGER_RATE // KIB):
            await client.send(bytes(8 * KIB))
        await wait_all_tasks_blocked()
        assert [info.left for info in site.server.connections(Phase.CLOSING)] == [LINGER]
        await site.ended()
        assert trio.current_time() == told + 1 + LINGER


async def test_the_peer_of_a_websocket_that_keeps_sending_is_cut_soon(autojump_clock: MockClock) -> None:
    """Its server may close at once (RFC 6455, 7.1.1). The moment is for the close, which a reset would discard."""
    async with serving(handler(Told()), only()) as site:
        client = await raw(site)
        await client.send(frame(TEXT, b"a", mask=b""))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_sending, client, 200 * KIB, 0.5)
            assert await close_frame(client) == (1002, "incorrect masking")
            assert await client.receive() == b""
            (info,) = site.server.connections()
            assert info.phase is Phase.CLOSING
            assert info.left == pytest.approx(LINGER)
            ended = await site.ended()
            assert (ended.reason, ended.phase) == (Reason.PROTOCOL_ERROR, Phase.WEBSOCKET)
            assert trio.current_time() == pytest.approx(LINGER)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("handled", [0.0, 6.0], ids=["answered before", "answered in it"])
@pytest.mark.parametrize("piece", [64 * KIB, 2000], ids=["much", "little"])
async def test_a_peer_that_keeps_sending_what_was_answered_does_not_hold_a_drain(
    piece: int, handled: float, autojump_clock: MockClock
) -> None:
    """What comes is discarded in a lingering close, or if it is little, for the next request."""

    async def answers_in_pieces(exchange: Exchange) -> None:
        exchange.start(200, [(b"content-length", b"2")])
        await exchange.send(b"a", True)
        await trio.sleep(handled)
        await exchange.send(b"b", False)

    async with serving(answers_in_pieces, only(drain=60, body_grace=20)) as site:
        client = await site.connect()
        await client.send(post(100 * piece))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_sending, client, piece, 0.5)
            await trio.sleep(5)
            site.server.shutdown()
            assert (await client.response()).status == 200
            assert await site.reason() is Reason.DONE
            # the rest of a request that is nearly over has LINGER, and its end as long
            assert trio.current_time() <= max(handled, 5) + 2 * LINGER
            nursery.cancel_scope.cancel()
        assert not site.server.was_cut


class DrainOfAReceive(trio.abc.Instrument):
    """Begins the drain in the moment in which a handler has left, and what its other task receives was ended."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if any(connection.state == FINISHING for connection in self._server._connections):
            self._server.shutdown()


async def test_a_drain_does_not_let_a_task_that_the_handler_has_left_receive_on(autojump_clock: MockClock) -> None:
    async def listen(exchange: Exchange, told: trio.Event) -> None:
        with pytest.raises(Disconnected, match="goes on without the handler"):
            await exchange.receive()
        told.set()

    async with trio.open_nursery() as others:
        told = trio.Event()

        async def leaves(exchange: Exchange) -> None:
            others.start_soon(listen, exchange, told)
            await wait_all_tasks_blocked()
            await hello(exchange)

        async with serving(leaves, only(drain=60)) as site:
            trio.lowlevel.add_instrument(DrainOfAReceive(site.server))
            client = await site.connect()
            await client.send(post(5))
            await told.wait()
            assert trio.current_time() == 0
            await client.send(b"12345")
            assert (await client.response()).status == 200
            assert await site.reason() is Reason.DONE


async def test_a_peer_that_sends_all_its_body_first_still_reads_the_response(autojump_clock: MockClock) -> None:
    """A close with unread bytes would be a reset, which discards the response."""
    async with serving(hello, limits=Limits(max_body=1000)) as site:
        client = await site.connect()
        await client.send(BODY)
        for _ in range(10):
            await client.send_what_is_taken(bytes(16 * KIB))
            await wait_all_tasks_blocked()
        assert (await client.response()).status == 413
        assert await client.end() == "eof"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_peer_that_takes_long_to_send_its_body_first_still_reads_the_response(
    tls: bool, autojump_clock: MockClock
) -> None:
    """As Python's requests, which would raise an error of TLS instead."""
    async with serving(hello, tls=tls) as site:
        client = await site.connect()
        await client.send(post(12 * KIB * KIB))
        for _ in range(12 * 8):
            await client.send(bytes(128 * KIB))
            await trio.sleep(0.1)
        assert (await client.response()).status == 200
        assert await client.end() == "eof"
        client.conn.close()
        await site.ended()


async def test_a_linger_of_many_takes_no_longer(autojump_clock: MockClock) -> None:
    async with serving(reads_body, limits=Limits(max_body=1000)) as site:
        clients = [await site.connect() for _ in range(50)]
        for client in clients:
            await client.send(BODY)
        await site.ended(50)
        assert trio.current_time() == LINGER


# what a handler sees after its connection was cut

CUTS: dict[str, tuple[dict[str, float], bytes, str]] = {
    "408": ({"body_grace": 5}, post(5), "stay"),
    "504": ({"handler": 5}, post(5) + b"hello", "stay"),
    "reset": ({}, post(5), "reset"),
    "closed": ({}, post(5), "close"),
}


class Stubborn:
    """A handler that is cut, and then tries everything."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    async def __call__(self, exchange: Exchange) -> None:
        try:
            while await exchange.receive():
                pass
            await trio.sleep_forever()
        except (Disconnected, trio.Cancelled):
            with trio.CancelScope(shield=True):
                # at once, while the server has not answered yet over TLS; and later
                await self._try_everything(exchange)
                await trio.sleep(1)
                await self._try_everything(exchange)
            raise

    async def _try_everything(self, exchange: Exchange) -> None:
        await self._attempt("receive", exchange.receive())
        with pytest.raises(Disconnected):
            exchange.start(200, [])
        await self._attempt("send", exchange.send(b"late", True))
        await self._attempt("watch", exchange.wait_disconnected())

    async def _attempt(self, name: str, operation: Awaitable[object]) -> None:
        try:
            await operation
            self.outcomes.append(f"{name}: returned")
        except Disconnected:
            self.outcomes.append(f"{name}: disconnected")


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(("timeouts", "data", "leave"), CUTS.values(), ids=CUTS)
async def test_everything_that_a_handler_tries_after_a_cut_is_disconnected(
    timeouts: dict[str, float], data: bytes, leave: str, tls: bool, autojump_clock: MockClock
) -> None:
    handler = Stubborn()
    async with serving(handler, only(**timeouts), tls=tls) as site:
        client = await site.connect()
        await client.send(data)
        await trio.sleep(1)
        if leave == "reset":
            client.reset()
        elif leave == "close":
            client.conn.close()
        else:
            # what the peer reads is what the server has answered in its own name
            received = await client.rest()
            assert received.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 504 "))
            assert received.count(b"HTTP/1.1 ") == 1
            assert b"late" not in received
        await trio.sleep(20)
        assert handler.outcomes == ["receive: disconnected", "send: disconnected", "watch: returned"] * 2


async def test_a_504_leaves_while_the_handler_is_stubborn_and_the_linger_is_not_prolonged(
    autojump_clock: MockClock,
) -> None:
    async def stubborn(exchange: Exchange) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)

    async with serving(stubborn, only(handler=5)) as site:
        _, told = await begin(site, GET, 504)
        assert told == 5.0
        await site.ended()
        assert trio.current_time() == 5.0 + LINGER


async def test_a_handler_that_never_ends_holds_no_connection_that_was_reset(autojump_clock: MockClock) -> None:
    async with serving(never, only(drain=5)) as site:
        client = await site.connect()
        await client.send(GET)
        await wait_all_tasks_blocked()
        site.server.shutdown()
        assert await client.end() == "reset"
        assert trio.current_time() == 5.0


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_peer_gets_one_last_response_if_its_body_turns_out_to_be_invalid_as_the_time_is_over(
    tls: bool, autojump_clock: MockClock
) -> None:
    async with serving(reads_body, only(handler=5), tls=tls) as site:
        client = await site.connect()
        await client.send(CHUNKED_POST)
        await trio.sleep(1)
        # the event loop was blocked, and sees both at once
        client.push(b"invalid\r\n")
        autojump_clock.jump(10)
        received = await client.rest()
        assert received.startswith(b"HTTP/1.1 504 ")
        assert received.count(b"HTTP/1.1 ") == 1
        assert await site.reason() is Reason.HANDLER_TIMEOUT
        assert site.records.requests[0].status == 504


@pytest.mark.parametrize("ends", ["deadline", "cut"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(("data", "status", "_"), ENDS.values(), ids=ENDS)
async def test_a_drain_that_ends_while_it_lingers_cuts_nothing_of_what_was_sent(
    data: bytes, status: int, _: bool, tls: bool, ends: str, autojump_clock: MockClock
) -> None:
    """The client has the whole response, or will read it; it only has not closed its side yet."""
    timeouts, limits = only(read_header=10, body_grace=10, drain=1), Limits(max_requests=1, max_body=1000)
    async with serving(reads_body, timeouts, limits, tls=tls) as site:
        client = await site.connect()
        await client.send(data)
        await trio.sleep(10.5 if status == 408 else 0.5)
        site.server.shutdown()
        if ends == "cut":
            site.server.cut()
        await trio.sleep(1.5)
        assert site.server.open_connections == 0
        assert (await client.response()).status == status
        assert await client.end() == "eof"
        assert not site.server.was_cut


async def test_a_drain_that_ends_before_a_last_response_was_taken_has_cut_it(autojump_clock: MockClock) -> None:
    async def answers_much(exchange: Exchange) -> None:
        await answer(exchange, bytes(16 * KIB * KIB))

    async with serving(answers_much, only(drain=1), Limits(max_requests=1)) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(1)
        site.server.shutdown()
        await trio.sleep(1.5)
        assert site.server.open_connections == 0
        assert site.server.was_cut
