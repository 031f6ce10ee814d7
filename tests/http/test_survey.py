"""Counting and listing connections in pieces, while they come and go. What it costs is measured elsewhere."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from deadlined.http import Exchange, Phase, Survey
from tests.support.http import GET, Client, Site, hello, only, serving

SORTS = ("id", "age", "left", "requests")


async def crowd(site: Site, number: int) -> list[Client]:
    """Connect clients, the first of which ask most; each third sends half a head more."""
    clients = []
    for one in range(number):
        client = await site.connect()
        for _ in range(1 + (number - one) // 2):
            await client.get()
        if one % 3 == 0:
            await client.send(GET[:5])
        clients.append(client)
        await trio.sleep(1)
    return clients


def pieces(survey: Survey, size: int) -> Iterator[int]:
    """Advance a survey, and yield after each piece what is left."""
    while survey.left:
        survey.advance(size)
        yield survey.left


@pytest.mark.parametrize("size", [1, 2, 4, 100])
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("descending", [False, True])
async def test_the_pieces_find_what_a_sort_of_all_would(
    size: int, sort: str, descending: bool, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(read_header=100.0, idle=75.0)) as site:
        await crowd(site, 9)
        every = site.server.connections()
        for phase in (None, Phase.IDLE, Phase.HEADER):
            wanted = [info for info in every if phase is None or info.phase is phase]
            wanted.sort(key=lambda info: (getattr(info, sort), info.id), reverse=descending)
            for limit in (0, 1, 3, len(wanted), 50):
                survey = site.server.survey(phase, sort=sort, descending=descending, limit=limit)
                assert [*pieces(survey, size)][-1] == 0
                assert survey.undescribed == min(limit, len(wanted))
                found = survey.describe(2) + survey.describe(50)
                assert [info.id for info in found] == [info.id for info in wanted[:limit]]
                assert (survey.phases[Phase.IDLE], survey.phases[Phase.HEADER]) == (6, 3)


async def test_one_that_ends_between_two_pieces_is_not_open_and_its_bytes_count_once(
    autojump_clock: MockClock,
) -> None:
    async with serving(timeouts=only(idle=75.0)) as site:
        clients = [await site.connect() for _ in range(6)]
        for client in clients:
            await client.get()
        before = site.server.statistics()
        survey = site.server.survey(limit=6)
        survey.advance(3)
        for client in clients:
            await client.conn.aclose()
        for number in range(len(clients)):
            await site.records.ended(number + 1)
        assert site.server.open_connections == 0
        survey.advance(3)
        assert survey.left == 0
        after = site.server.statistics(survey)
        # those that were visited before they ended were open then
        assert after.open == 3
        assert (after.received, after.sent) == (before.received, before.sent)
        assert survey.describe(10) == []


async def test_one_that_begins_meanwhile_is_left_to_the_next_survey(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=75.0)) as site:
        await (await site.connect()).get()
        survey = site.server.survey(limit=10)
        await (await site.connect()).get()
        survey.advance(10)
        assert (site.server.statistics(survey).open, len(survey.describe(10))) == (1, 1)
        assert site.server.statistics().open == 2


async def test_one_whose_phase_has_changed_is_not_described_as_what_was_asked_for(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=75.0)) as site:
        client = await site.connect()
        await client.get()
        survey = site.server.survey(Phase.IDLE, limit=10)
        survey.advance(10)
        await client.send(GET[:5])
        await trio.sleep(1)
        assert (survey.undescribed, survey.describe(10)) == (1, [])


class Crowd:
    """Clients that come, ask and leave by chance. `asked`: their requests, all of which were answered."""

    def __init__(self, site: Site, chosen: random.Random) -> None:
        self._site = site
        self._chosen = chosen
        self._clients: list[Client] = []
        self.asked = 0

    async def change(self) -> None:
        """Let one of them come, ask or leave."""
        what = self._chosen.random()
        if what < 0.8 or not self._clients:
            if what < 0.5 or not self._clients:
                self._clients.append(await self._site.connect())
            await self._chosen.choice(self._clients).get()
            self.asked += 1
        else:
            await self._clients.pop(self._chosen.randrange(len(self._clients))).conn.aclose()
            await trio.sleep(0.1)


@pytest.mark.parametrize("seed", range(5))
async def test_no_total_goes_back_and_no_byte_counts_twice_however_they_come_and_go(
    seed: int, autojump_clock: MockClock
) -> None:
    chosen = random.Random(seed)
    async with serving(timeouts=only(idle=75.0)) as site:
        crowd = Crowd(site, chosen)
        await crowd.change()
        answer = site.server.statistics().sent
        received = sent = 0
        for _ in range(15):
            asked, was_open = crowd.asked, site.server.open_connections
            survey = site.server.survey(limit=5)
            for _ in pieces(survey, chosen.randint(1, 3)):
                await crowd.change()
            found = site.server.statistics(survey)
            assert (found.open <= was_open, len(survey.describe(5)) <= min(was_open, 5)) == (True, True)
            assert found.received >= max(received, asked * len(GET))
            assert found.sent >= max(sent, asked * answer)
            assert found.received <= crowd.asked * len(GET)
            assert found.sent <= crowd.asked * answer
            received, sent = found.received, found.sent
            await crowd.change()
        last = site.server.statistics()
        assert (last.received, last.sent) == (crowd.asked * len(GET), crowd.asked * answer)


def get(path: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path


async def test_the_busiest_paths_are_of_requests_that_are_handled_also_in_the_background(
    autojump_clock: MockClock,
) -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.request.path == b"/background":
            await hello(exchange)
        await trio.sleep(0 if exchange.request.path == b"/done" else 100)

    async with serving(handler, only(read_header=100.0)) as site:
        for path in (b"/b", b"/a", b"/b?x=1", b"/done", b"/background?secret", b"*", b"/" + b"l" * 200):
            client = await site.connect()
            await client.send(get(path) if path != b"*" else b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n")
        await (await site.connect()).send(GET[:5])
        await trio.sleep(1)
        assert site.server.background == 1
        longest = "/" + "l" * 99 + "..."
        assert site.server.paths(9) == {"/b": 2, "/a": 1, "/background": 1, longest: 1}
        assert list(site.server.paths(2).items()) == [("/b", 2), ("/a", 1)]
        assert site.server.paths(0) == {}


async def test_a_request_whose_handler_was_left_behind_counts_once(autojump_clock: MockClock) -> None:
    async def handler(exchange: Exchange) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    async with serving(handler, only(handler=1.0)) as site:
        client = await site.connect()
        await client.send(get(b"/stubborn"))
        await trio.sleep(2)
        # the close of its connection lingers
        assert (site.server.background, site.server.open_connections) == (1, 1)
        assert site.server.paths(9) == {"/stubborn": 1}
