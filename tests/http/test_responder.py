"""Exchanges that are answered by callbacks, without a task, until one is needed: on every event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deadlined.http import Disconnected, Exchange, Reason, Responder
from deadlined.http.base import ConnectionBase
from deadlined.http.state import IDLE, UNATTENDED
from tests.support.builds import interpreted_only
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.http import CHUNKED_POST, GET, LAST_GET, Client, post

pytestmark = [pytest.mark.usefixtures("parser"), interpreted_only]

HEAD = GET.replace(b"GET", b"HEAD", 1)

Run = Callable[["Played"], Awaitable[None]]


class Played(Responder):
    """A responder that a test plays. `in_task` is what it does in a task."""

    def __init__(self, exchange: Exchange, begin: Callable[[Played], None], in_task: Run) -> None:
        self.exchange = exchange
        self.calls: list[str] = []
        self._begin = begin
        self._in_task = in_task

    def begin(self) -> None:
        self.calls.append("begin")
        self._begin(self)

    async def run(self) -> None:
        self.calls.append("run")
        try:
            await self._in_task(self)
        except BaseException as error:
            self.calls.append(type(error).__name__)
            raise

    def abandon(self) -> None:
        self.calls.append("abandon")

    def start(self, length: int) -> None:
        self.exchange.start(200, [(b"content-length", b"%d" % length)])

    def answer(self, body: bytes = b"fine") -> None:
        """Give the whole response."""
        self.start(len(body))
        self.exchange.try_send(body, False)
        self.exchange.go_on()


class Asked:
    """Who answers the requests of a site, and what a handler was called for."""

    def __init__(self, begin: Callable[[Played], None], in_task: Run) -> None:
        self.begin = begin
        self.in_task = in_task
        self.played: list[Played] = []
        self.handled: list[Exchange] = []
        self.declines = False
        self.site: Site

    def respond(self, exchange: Exchange) -> Responder | None:
        if self.declines:
            return None
        self.played.append(Played(exchange, self.begin, self.in_task))
        return self.played[-1]

    async def handle(self, exchange: Exchange) -> None:
        self.handled.append(exchange)
        exchange.start(200, [(b"content-length", b"7")])
        await exchange.send(b"handler", False)

    async def first(self, request: bytes = GET) -> tuple[Client, Played]:
        """Return a client that has sent the site's first request, and its exchange."""
        client = await self.site.connect()
        await client.send(request)
        return client, await self.next()

    async def next(self, number: int = 1) -> Played:
        """Wait for the `number`th exchange."""
        await self.site.until(lambda: len(self.played) >= number)
        return self.played[number - 1]

    @property
    def connection(self) -> ConnectionBase:
        """The only connection."""
        (connection,) = self.site.server._connections
        return connection


def _nothing(played: Played) -> None:
    """Leave the answer to the test."""


async def _answers(played: Played) -> None:
    played.start(4)
    await played.exchange.send(b"task", False)


@asynccontextmanager
async def answering(
    loop: Loop, *, begin: Callable[[Played], None] = _nothing, in_task: Run = _answers, **timeouts: float
) -> AsyncIterator[Asked]:
    asked = Asked(begin, in_task)
    options: dict[str, Any] = {"respond": asked.respond, **timeouts}
    async with site_of(loop, asked.handle, **options) as (asked.site, _):
        yield asked


@on_each_loop
async def test_an_exchange_has_no_task_until_it_is_answered(loop: Loop) -> None:
    async with answering(loop) as asked:
        client = await asked.site.connect()
        for number in (1, 2, 3):
            await client.send(GET)
            played = await asked.next(number)
            await loop.settle()
            assert asked.connection.attendance == UNATTENDED
            assert played.calls == ["begin"]
            played.answer()
            assert (await client.response()).body == b"fine"
            await loop.settle()
            assert (asked.connection.state, asked.connection.attendance) == (IDLE, UNATTENDED)
            assert played.calls == ["begin"]
        assert asked.handled == []
        assert [record.status for record in asked.site.requests] == [200, 200, 200]


@on_each_loop
async def test_it_may_be_answered_at_once(loop: Loop) -> None:
    async with answering(loop, begin=Played.answer) as asked:
        client = await asked.site.connect()
        for _ in range(3):
            assert (await client.get()).body == b"fine"


@on_each_loop
async def test_pieces_leave_as_they_come(loop: Loop) -> None:
    async with answering(loop) as asked:
        client, played = await asked.first()
        played.start(6)
        for piece in (b"one", b"two"):
            played.exchange.try_send(piece, piece == b"one")
            assert (await client.receive()).endswith(piece)
        played.exchange.go_on()
        assert played.calls == ["begin"]


@on_each_loop
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_needs_a_task_goes_on_in_one(loop: Loop, at_once: bool) -> None:
    async with answering(loop, begin=(lambda played: played.exchange.go_on()) if at_once else _nothing) as asked:
        client = await asked.site.connect()
        for number in (1, 2):
            await client.send(GET)
            played = await asked.next(number)
            if not at_once:
                await loop.settle()
                assert played.calls == ["begin"]
                played.exchange.go_on()
            assert (await client.response()).body == b"task"
            assert played.calls == ["begin", "run"]


@on_each_loop
async def test_a_task_goes_on_in_the_middle_of_a_response(loop: Loop) -> None:
    async def rest(played: Played) -> None:
        await played.exchange.send(b"rest", False)

    async with answering(loop, in_task=rest) as asked:
        client, played = await asked.first()
        played.start(8)
        played.exchange.try_send(b"some", True)
        played.exchange.go_on()
        assert (await client.response()).body == b"somerest"
        assert played.calls == ["begin", "run"]


@on_each_loop
@pytest.mark.parametrize("started", [False, True])
async def test_a_failure_in_the_task_is_answered_as_that_of_a_handler(loop: Loop, started: bool) -> None:
    async def fail(played: Played) -> None:
        raise ValueError("a mistake")

    async with answering(loop, in_task=fail) as asked:
        client, played = await asked.first()
        if started:
            played.start(8)
            played.exchange.try_send(b"some", True)
        played.exchange.go_on()
        if started:
            assert await client.end() == "reset"
        else:
            assert (await client.response()).status == 500
        assert await asked.site.reason() is Reason.SERVER_ERROR
        assert played.calls == ["begin", "run", "ValueError"]


@on_each_loop
async def test_a_client_that_resets_ends_its_exchange(loop: Loop) -> None:
    async with answering(loop) as asked:
        client, played = await asked.first()
        await loop.settle()
        client.reset()
        assert await asked.site.reason() is Reason.CLIENT_RESET
        assert played.calls == ["begin", "abandon"]
        assert asked.site.server.background == 0
        with pytest.raises(Disconnected):
            played.exchange.try_send(b"late", True)


@on_each_loop
async def test_a_client_that_has_ended_its_side_is_answered(loop: Loop) -> None:
    async with answering(loop) as asked:
        client, played = await asked.first()
        await client.conn.send_eof()
        assert (await client.response()).body == b"task"
        assert await client.end() == "eof"
        assert played.calls == ["begin", "run"]


@on_each_loop
async def test_requests_that_are_pipelined_are_answered_in_order(loop: Loop) -> None:
    async with answering(loop) as asked:
        client, first = await asked.first()
        await loop.settle()
        # the poller calls for what comes now, and a task looks what it is
        await client.send(GET + GET)
        assert (await client.response()).body == b"task"
        assert first.calls == ["begin", "run"]
        for number in (2, 3):
            (await asked.next(number)).answer()
            assert (await client.response()).body == b"fine"
        assert len(asked.played) == 3


@on_each_loop
async def test_a_request_that_comes_between_two_that_were_pipelined_is_not_forgotten(loop: Loop) -> None:
    async with answering(loop) as asked:
        client, first = await asked.first(GET + GET)
        await loop.settle()
        first.answer()
        # the poller tells of it before a task begins the second one, whose watch finds it and does not receive it
        client.push(GET)
        assert (await client.response()).body == b"fine"
        second = await asked.next(2)
        await loop.settle()
        second.answer()
        assert (await client.response()).body == b"fine"
        (await asked.next(3)).answer()
        assert (await client.response()).body == b"fine"


@on_each_loop
@pytest.mark.parametrize("complete", [True, False])
async def test_an_answer_may_come_while_a_task_is_on_its_way(loop: Loop, complete: bool) -> None:
    async def rest(played: Played) -> None:
        await played.exchange.send(b"rest", False)

    async with answering(loop, in_task=rest) as asked:
        client, played = await asked.first()
        await loop.settle()
        # the poller calls
        asked.connection.conn.cancel_call()
        asked.connection.on_ready()
        if complete:
            played.answer()
        else:
            played.start(8)
            played.exchange.try_send(b"some", True)
            played.exchange.go_on()
        assert (await client.response()).body == (b"fine" if complete else b"somerest")
        assert played.calls == (["begin"] if complete else ["begin", "run"])
        await client.send(GET)
        (await asked.next(2)).answer()
        assert (await client.response()).body == b"fine"


@on_each_loop
async def test_the_last_response_of_a_connection_ends_it(loop: Loop) -> None:
    async with answering(loop) as asked:
        client = await asked.site.connect()
        await client.send(LAST_GET)
        (await asked.next()).answer()
        assert (await client.response()).headers["connection"] == "close"
        assert await client.end() == "eof"
        assert await asked.site.reason() is Reason.DONE


@on_each_loop
async def test_a_response_to_head_has_no_body(loop: Loop) -> None:
    async with answering(loop) as asked:
        client = await asked.site.connect()
        for number in (1, 2):
            await client.send(HEAD)
            played = await asked.next(number)
            played.start(100)
            played.exchange.try_send(b"", False)
            played.exchange.go_on()
            assert (await client.response("HEAD")).headers["content-length"] == "100"


@on_each_loop
async def test_a_body_that_was_not_received_is_discarded_before_the_next_request(loop: Loop) -> None:
    async with answering(loop) as asked:
        client, played = await asked.first(post(5) + b"hel")
        assert played.exchange.try_receive() == b"hel"
        assert played.exchange.try_receive() is None
        played.answer()
        assert (await client.response()).body == b"fine"
        await client.send(b"lo" + GET)
        (await asked.next(2)).answer(b"next")
        assert (await client.response()).body == b"next"


@on_each_loop
async def test_an_invalid_body_is_refused(loop: Loop) -> None:
    def receive(played: Played) -> None:
        with pytest.raises(Disconnected):
            played.exchange.try_receive()
        played.exchange.go_on()

    async with answering(loop, begin=receive) as asked:
        client = await asked.site.connect()
        await client.send(CHUNKED_POST + b"no chunk\r\n")
        assert (await client.response()).status == 400
        assert await asked.site.reason() is Reason.PROTOCOL_ERROR
        assert asked.played[0].calls == ["begin", "abandon"]


@on_each_loop
async def test_a_client_that_does_not_read_is_cut_by_the_write_deadline(loop: Loop) -> None:
    async with answering(loop, write_grace=5, write_min_rate=1e9) as asked:
        client = await asked.site.connect(receive_buffer=4096)
        await client.send(GET)
        played = await asked.next()
        played.answer(bytes(20_000_000))
        assert await asked.site.reason() is Reason.WRITE_TIMEOUT
        if loop.is_virtual:
            assert asked.site.connections[0].lateness == 0
        assert played.calls == ["begin"]


@on_each_loop
async def test_a_client_that_does_not_read_a_piece_is_cut_too(loop: Loop) -> None:
    async with answering(loop, write_grace=5, write_min_rate=1e9) as asked:
        client = await asked.site.connect(receive_buffer=4096)
        await client.send(GET)
        played = await asked.next()
        played.start(30_000_000)
        # more is to come, and nobody calls for it
        played.exchange.try_send(bytes(20_000_000), True)
        assert await asked.site.reason() is Reason.WRITE_TIMEOUT
        assert played.calls == ["begin", "abandon"]
        assert not asked.site.server._connections
        assert len(asked.site.requests) == 1


@on_each_loop
@pytest.mark.parametrize("piece", [b"", b"some"], ids=["the head alone", "a piece"])
async def test_what_comes_after_the_time_of_its_response_ends_the_connection(loop: Loop, piece: bytes) -> None:
    async with answering(loop, write=1) as asked:
        client, played = await asked.first()
        await loop.sleep(2)
        played.start(4)
        if piece:
            assert not played.exchange.try_send(piece, True)
        else:
            played.exchange.hold_head()
        assert await asked.site.reason() is Reason.WRITE_TIMEOUT
        assert played.calls == ["begin", "abandon"]
        assert not asked.site.server._connections
        assert await client.end() == "reset"


@on_each_loop
async def test_a_client_that_has_reset_between_two_pieces_ends_its_exchange_in_any_case(loop: Loop) -> None:
    async with answering(loop) as asked:
        settings = asked.site.server._settings
        object.__setattr__(settings, "cancel_on_disconnect", False)
        client, played = await asked.first()
        played.start(100)
        played.exchange.try_send(b"some", True)
        await client.receive()
        client.reset()
        await loop.settle()
        # the kernel takes no more
        played.exchange.try_send(b"more", True)
        assert await asked.site.reason() is Reason.CLIENT_RESET
        assert played.calls == ["begin", "abandon"]
        assert not asked.site.server._connections


@on_each_loop
async def test_the_head_is_sent_alone_if_that_is_asked_for(loop: Loop) -> None:
    async with answering(loop) as asked:
        client, played = await asked.first()
        played.start(4)
        played.exchange.hold_head()
        assert (await client.receive()).endswith(b"\r\n\r\n")
        played.exchange.try_send(b"fine", False)
        played.exchange.go_on()
        assert await client.receive() == b"fine"
        assert played.calls == ["begin"]


@on_each_loop
async def test_a_mistake_of_a_responder_ends_its_connection(loop: Loop) -> None:
    def fail(played: Played) -> None:
        raise ValueError("a mistake")

    async with answering(loop, begin=fail) as asked:
        client = await asked.site.connect()
        await client.send(GET)
        assert await client.end() in ("eof", "reset")
        assert await asked.site.reason() is Reason.SERVER_ERROR
        assert asked.played[0].calls == ["begin", "abandon"]
        # the next client is served
        asked.begin = Played.answer
        assert (await (await asked.site.connect()).get()).body == b"fine"


@on_each_loop
async def test_a_drain_waits_for_an_exchange_without_a_task(loop: Loop) -> None:
    async with answering(loop, drain=30) as asked:
        client, played = await asked.first()
        asked.site.server.shutdown()
        await loop.sleep(5)
        assert asked.site.serving.pending
        played.answer()
        assert (await client.response()).headers["connection"] == "close"
        assert await client.end() == "eof"
        client.conn.close()
        await asked.site.serving.wait()
        assert not asked.site.server.was_cut


@on_each_loop
async def test_the_end_of_a_drain_abandons_an_exchange(loop: Loop) -> None:
    async with answering(loop, drain=3) as asked:
        _, played = await asked.first()
        due = loop.after(3)
        asked.site.server.shutdown()
        await asked.site.serving.wait()
        assert loop.is_at(due)
        assert await asked.site.reason() is Reason.DRAIN_TIMEOUT
        assert played.calls == ["begin", "abandon"]
        assert asked.site.server.was_cut


@on_each_loop
async def test_a_server_that_is_cancelled_abandons_an_exchange(loop: Loop) -> None:
    async with answering(loop) as asked:
        client, played = await asked.first()
        await loop.settle()
        asked.site.serving.cancel()
        await asked.site.serving.wait()
        assert played.calls == ["begin", "abandon"]
        assert await client.end() == "reset"


@on_each_loop
async def test_the_handler_serves_what_nobody_answers_otherwise(loop: Loop) -> None:
    async with answering(loop) as asked:
        client = await asked.site.connect()
        asked.declines = True
        assert (await client.get()).body == b"handler"
        asked.declines = False
        await client.send(GET)
        (await asked.next()).answer()
        assert (await client.response()).body == b"fine"
        assert len(asked.handled) == 1


@on_each_loop
async def test_a_task_meets_the_deadline_of_the_handler(loop: Loop) -> None:
    async def wait(played: Played) -> None:
        await loop.forever()

    async with answering(loop, in_task=wait, handler=10) as asked:
        client, played = await asked.first()
        await loop.sleep(10)
        played.exchange.go_on()
        assert (await client.response()).status == 504
        assert await asked.site.reason() is Reason.HANDLER_TIMEOUT
