"""Tasks that a handler has started: the response is out, one of them still reads the body, another goes on for long.

The next request waits for the body and for nothing else.
"""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Disconnected, Exchange, Reason
from tests.support.http import CHUNKED_POST, GET, Seen, answer, chunk, only, post, serving

pytestmark = pytest.mark.usefixtures("parser")

BACKGROUND = 1000

BODIES = {
    "length": (post(5) + b"he", b"l", b"lo"),
    "chunked": (CHUNKED_POST + chunk(b"he"), chunk(b"l"), chunk(b"lo") + chunk(b"")),
}


class Children:
    """A handler that answers once a task of its reads the body, while another goes on in the background."""

    def __init__(self, pause: float = 0.0) -> None:
        self._pause = pause
        self.received: list[bytes] = []
        self.refused = 0

    async def __call__(self, exchange: Exchange) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, BACKGROUND)
            if exchange.request.method == "POST":
                nursery.start_soon(self._read, exchange)
                await wait_all_tasks_blocked()
            await answer(exchange)

    async def _read(self, exchange: Exchange) -> None:
        try:
            while piece := await exchange.receive():
                self.received.append(piece)
                if self._pause and len(self.received) > 1:
                    await trio.sleep(self._pause)
        except Disconnected:
            self.refused += 1


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_the_next_request_waits_for_the_body_only(
    body: tuple[bytes, ...], tls: bool, autojump_clock: MockClock
) -> None:
    handler = Children()
    seen = Seen()
    first, *rest = body
    async with serving(seen.watch(handler), tls=tls) as site:
        client = await site.connect()
        start = trio.current_time()
        assert (await client.get(first)).status == 200
        assert trio.current_time() == start
        for piece in rest:
            await trio.sleep(1)
            await client.send(piece)
        await client.send(GET)
        assert (await client.response()).status == 200
        assert trio.current_time() == start + 2
        assert b"".join(handler.received) == b"hello"
        assert site.server.statistics().background == 2
        # they go on to their end
        assert seen.ended == []
        await trio.sleep(BACKGROUND + 3)
        assert [how for how, _ in seen.ended] == ["returned"] * 2


async def test_a_child_that_pauses_between_pieces_loses_the_rest(autojump_clock: MockClock) -> None:
    """While it does not receive, the connection goes on and reads the body itself: two readers would share it."""
    handler = Children(pause=1)
    async with serving(handler) as site:
        client = await site.connect()
        await client.get(post(5) + b"he")
        start = trio.current_time()
        await client.send(b"l")
        await wait_all_tasks_blocked()
        await client.send(b"lo" + GET)
        assert (await client.response()).status == 200
        assert trio.current_time() == start
        await trio.sleep(2)
        assert handler.received == [b"he", b"l"]
        assert handler.refused == 1


@pytest.mark.parametrize(
    ("leave", "reason"), [("close", Reason.CLIENT_CLOSED), ("reset", Reason.CLIENT_RESET), ("stay", Reason.BODY_RATE)]
)
async def test_a_body_that_never_comes_ends_the_connection_and_not_the_background(
    leave: str, reason: Reason, autojump_clock: MockClock
) -> None:
    handler = Children()
    seen = Seen()
    async with serving(seen.watch(handler), only(body_grace=10)) as site:
        client = await site.connect()
        await client.get(post(5) + b"he")
        if leave == "close":
            client.conn.close()
        elif leave == "reset":
            client.reset()
        assert await site.reason() is reason
        assert trio.current_time() < 15
        await wait_all_tasks_blocked()
        assert handler.refused == 1
        await trio.sleep(BACKGROUND + 1)
        assert [how for how, _ in seen.ended] == ["returned"]
