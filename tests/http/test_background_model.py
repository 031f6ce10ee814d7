"""A model of one connection with handlers that go on after their responses: when each response comes, and each handler
ends.

Everything is told by four rules. A request begins when the one before it is answered, a response is out after the time
that its handler takes before it, a handler ends when it wants to or at its deadline, and no request waits for the end
of another's handler.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from deadlined.http import Exchange
from tests.support.http import Client, answer, only, serving

pytestmark = pytest.mark.usefixtures("parser")

# no two moments of the model fall together with it
HANDLER = 3.5


@dataclass(frozen=True)
class Asked:
    """One request: seconds that its handler takes before its response and after it, and how it and its connection
    end."""

    before: int
    after: int
    fails: bool
    closes: bool


@dataclass(frozen=True)
class Burst:
    """Requests that are sent at once, so many seconds after the last response."""

    pause: int
    requests: tuple[Asked, ...]


REQUESTS = st.builds(
    Asked, st.integers(0, 4), st.sampled_from([0, 0, 1, 2, 5]), st.booleans(), st.sampled_from([False] * 5 + [True])
)
BURSTS = st.lists(
    st.builds(Burst, st.integers(0, 2), st.lists(REQUESTS, min_size=1, max_size=3).map(tuple)), min_size=1, max_size=4
)

# what the peer gets: status and time
Answer = tuple[int, float]
# how and when a handler ends, by the number of its request
Ends = dict[int, tuple[str, float]]


def predict(bursts: list[Burst]) -> tuple[list[Answer], Ends]:
    """The four rules."""
    answers: list[Answer] = []
    ends: Ends = {}
    now = 0.0
    for burst in bursts:
        now += burst.pause
        for asked in burst.requests:
            deadline = now + HANDLER
            number = len(answers)
            if asked.before > HANDLER:
                answers.append((504, deadline))
                ends[number] = ("cancelled", deadline)
                return answers, ends
            now += asked.before
            answers.append((200, now))
            ending = "failed" if asked.fails else "returned"
            ends[number] = (ending, now + asked.after) if now + asked.after < deadline else ("cancelled", deadline)
            if asked.closes:
                return answers, ends
    return answers, ends


class Story:
    """Plays the bursts, and remembers what came of them."""

    def __init__(self, bursts: list[Burst]) -> None:
        self._bursts = bursts
        self._asked = [asked for burst in bursts for asked in burst.requests]
        self.begun = 0
        self.answers: list[Answer] = []
        self.ends: Ends = {}

    async def handle(self, exchange: Exchange) -> None:
        number = self.begun
        self.begun += 1
        ending = "cancelled"
        try:
            await self._act(self._asked[number], exchange)
            ending = "returned"
        except ValueError:
            ending = "failed"
            raise
        finally:
            self.ends[number] = (ending, trio.current_time())

    async def _act(self, asked: Asked, exchange: Exchange) -> None:
        if asked.before:
            await trio.sleep(asked.before)
        await answer(exchange)
        if asked.after:
            await trio.sleep(asked.after)
        if asked.fails:
            raise ValueError("as it was asked to")

    async def play(self, client: Client) -> None:
        """Until the last response, or the end of the connection."""
        for burst in self._bursts:
            await trio.sleep(burst.pause)
            await client.send_what_is_taken(b"".join(map(_head, burst.requests)))
            for _ in burst.requests:
                response = await client.response()
                self.answers.append((response.status, trio.current_time()))


def _head(asked: Asked) -> bytes:
    return b"GET / HTTP/1.1\r\nhost: x\r\n%b\r\n" % (b"connection: close\r\n" if asked.closes else b"")


# the fixture chooses the parser, for all examples alike
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(bursts=BURSTS)
def test_a_connection_and_its_handlers_go_by_the_model(bursts: list[Burst]) -> None:
    story = Story(bursts)

    async def main() -> None:
        async with serving(story.handle, only(handler=HANDLER)) as site:
            client = await site.connect()
            try:
                await story.play(client)
            except (EOFError, trio.BrokenResourceError):
                assert len(story.answers) < sum(len(burst.requests) for burst in bursts)
            client.conn.close()
            await site.ended()
            await trio.sleep(2 * HANDLER)
            statistics = site.server.statistics()
            assert (statistics.open, statistics.background) == (0, 0)
            assert statistics.requests == len(site.records.requests) == story.begun

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert (story.answers, story.ends) == predict(bursts)
