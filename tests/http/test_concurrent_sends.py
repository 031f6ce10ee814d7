"""Several tasks of a handler send: pieces arrive complete and in the order of the calls, or the response is reset."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Disconnected, Exchange, Reason
from tests.support.handlers import HUGE
from tests.support.http import GET, only, serving

TASKS = 4
ROUNDS = 3
# of one byte, of some packets, and of more than the kernel's buffers take
SIZES = [1, 10_000, 400_000]

Headers = list[tuple[bytes, bytes]]


def pieces(size: int) -> list[list[bytes]]:
    """Return what each task sends, all of it different and of different lengths."""
    return [
        [bytes([97 + task, 48 + turn]) * (size // 2) + bytes([97 + task]) * (1 + task) for turn in range(ROUNDS)]
        for task in range(TASKS)
    ]


def length_of(size: int) -> int:
    return sum(len(piece) for each in pieces(size) for piece in each)


class Senders:
    """A handler whose tasks send at the same time; `calls` are the pieces in the order of the calls."""

    def __init__(self, size: int, headers: Headers) -> None:
        self._pieces = pieces(size)
        self._headers = headers
        self.calls: list[bytes] = []

    async def __call__(self, exchange: Exchange) -> None:
        exchange.start(200, self._headers)
        async with trio.open_nursery() as nursery:
            for each in self._pieces:
                nursery.start_soon(self._send, exchange, each)
        await exchange.send(b"", False)

    async def _send(self, exchange: Exchange, each: list[bytes]) -> None:
        for piece in each:
            self.calls.append(piece)
            await exchange.send(piece, True)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sends(each: list[bytes]) -> None:
            for piece in each:
                self.calls.append(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        async with trio.open_nursery() as nursery:
            for each in self._pieces:
                nursery.start_soon(sends, each)
        await send({"type": "http.response.body"})


@pytest.mark.parametrize("asgi", [False, True], ids=["exchange", "asgi"])
@pytest.mark.parametrize("receive_buffer", [None, 65536], ids=["fast", "slow"])
@pytest.mark.parametrize("framing", ["chunked", pytest.param("length", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("size", SIZES)
async def test_pieces_arrive_complete_and_in_the_order_of_the_calls(
    size: int, tls: bool, framing: str, receive_buffer: int | None, asgi: bool, autojump_clock: MockClock
) -> None:
    headers = [(b"content-length", b"%d" % length_of(size))] if framing == "length" else []
    senders = Senders(size, headers)
    async with serving(AsgiHandler(senders.app) if asgi else senders, tls=tls) as site:
        client = await site.connect(receive_buffer=receive_buffer)
        for _ in range(2):
            senders.calls.clear()
            await client.send(GET)
            if receive_buffer is not None:
                # all of them have called, and those that cannot send wait
                await wait_all_tasks_blocked()
            response = await client.response()
            assert (response.status, response.closes) == (200, False)
            assert len(senders.calls) == TASKS * ROUNDS
            assert response.body == b"".join(senders.calls)


class GivesUp:
    """A handler with three tasks that send more than is taken; `who` is cancelled after a second."""

    def __init__(self, who: int) -> None:
        self._who = who
        self.all_wait = trio.Event()
        self.outcomes: list[tuple[int, str]] = []

    async def __call__(self, exchange: Exchange) -> None:
        exchange.start(200, [])
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(self._send, exchange, number)
                # trio starts tasks in any order
                await wait_all_tasks_blocked()
            self.all_wait.set()
        await exchange.send(b"", False)

    async def _send(self, exchange: Exchange, number: int) -> None:
        with trio.move_on_after(1 if number == self._who else 100) as scope:
            await exchange.send(piece_of(number), True)
        self.outcomes.append((number, "cancelled" if scope.cancelled_caught else "sent"))


def piece_of(number: int) -> bytes:
    """Return more than the kernel takes for a peer that does not read."""
    return b"%d" % number * 1_000_000


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("who", [0, 1, 2], ids=["who sends", "who is next", "who is last"])
async def test_a_send_that_is_cancelled_is_sent_nevertheless_and_the_response_stays_whole(
    who: int, tls: bool, mock_clock: MockClock
) -> None:
    # the clock is moved by the test alone: the kernel may pause a stream for a moment of real time
    handler = GivesUp(who)
    async with serving(handler, tls=tls) as site:
        client = await site.connect(receive_buffer=65536)
        await client.send(GET)
        await handler.all_wait.wait()
        mock_clock.jump(2)
        await wait_all_tasks_blocked()
        assert (await client.response()).body == b"".join(piece_of(number) for number in range(3))
        assert sorted(handler.outcomes) == [(number, "cancelled" if number == who else "sent") for number in range(3)]
        assert site.server.statistics().open == 1


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_sender_that_is_cancelled_when_its_piece_is_out_ends_nothing(
    tls: bool, autojump_clock: MockClock
) -> None:
    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        with trio.move_on_after(1):
            await exchange.send(b"first", True)
            await trio.sleep_forever()
        await exchange.send(b"second", False)

    async with serving(handler, tls=tls) as site:
        client = await site.connect()
        assert (await client.get()).body == b"firstsecond"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_all_senders_see_a_peer_that_does_not_accept_in_time(tls: bool, autojump_clock: MockClock) -> None:
    """The handler is cancelled; nobody waits for ever for its turn."""
    ended: list[float] = []

    async def handler(exchange: Exchange) -> None:
        async def send() -> None:
            try:
                await exchange.send(bytes(HUGE), True)
            finally:
                ended.append(trio.current_time())

        exchange.start(200, [])
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(send)

    async with serving(handler, only(write=5), tls=tls) as site:
        client = await site.connect()
        await client.send(GET)
        assert await site.reason() is Reason.WRITE_TIMEOUT
        assert ended == [5.0] * 3
        assert await client.end() == "reset"


async def test_all_senders_see_a_peer_that_resets(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def handler(exchange: Exchange) -> None:
        async def send() -> None:
            try:
                await exchange.send(bytes(HUGE), True)
            except Disconnected:
                seen.append(exchange.link)

        exchange.start(200, [])
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(send)

    async with serving(handler) as site:
        client = await site.connect()
        await client.send(GET)
        await wait_all_tasks_blocked()
        client.reset()
        assert await site.reason() is Reason.CLIENT_RESET
        assert len(seen) == 3
