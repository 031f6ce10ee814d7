"""A question about many connections leaves the event loop to others while it is answered. In virtual time, in which
work takes no time at all, and pauses do."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from deadlined.http import Exchange
from deadlined.runtime import current_host
from deadlined.service.admin import pieces
from deadlined.service.admin.gather import Serving
from deadlined.service.admin.picture import Question
from deadlined.service.admin.pieces import MOST_PIECES, PAUSE, PIECE, Pieces
from tests.support.admin import asking, local
from tests.support.http import Site, hello, only, serving

EVERYTHING = Question(what="connections", sort="left", limit=1000)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> int:
    """Make a piece as small as three connections."""
    monkeypatch.setattr(pieces, "PIECE", 3)
    return 3


async def idle_clients(site: Site, number: int) -> list[object]:
    """Connect clients that have asked once."""
    clients = [await site.connect() for _ in range(number)]
    for client in clients:
        await client.get()
    return list(clients)


async def test_others_run_between_two_pieces_and_a_piece_is_bounded(
    small_pieces: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[object] = []

    async def others() -> None:
        while True:
            await trio.sleep(PAUSE / 2)
            happened.append("turn")

    async with serving(timeouts=only(idle=75.0)) as site, trio.open_nursery() as nursery:
        await idle_clients(site, 10)
        survey = site.server.survey(limit=1000)
        pause = Pieces.pause

        async def watched(work: Pieces) -> None:
            happened.append(survey.left)
            await pause(work)

        monkeypatch.setattr(Pieces, "pause", watched)
        monkeypatch.setattr(Serving, "_survey", lambda *_: survey)
        nursery.start_soon(others)
        answer = await Serving(site.server, current_host().poller, lambda: 0).answer(EVERYTHING, 1)
        nursery.cancel_scope.cancel()
    # the last pause is behind the description
    assert [one for one in happened if one != "turn"] == [7, 4, 1, 0, 0]
    assert all(after == "turn" for one, after in itertools.pairwise(happened) if one != "turn")
    assert (answer.matching, len(answer.connections)) == (10, 10)


@pytest.mark.parametrize("path", ["/metrics", "/statistics", "/connections?limit=1000"])
async def test_a_client_is_served_and_a_deadline_kept_while_a_question_is_answered(
    path: str, small_pieces: int, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(idle=75.0)) as site, asking(local(site.server)) as admin:
        await idle_clients(site, 59)
        client = await site.connect()
        ended = trio.Event()
        served = [0.0]

        async def ask() -> None:
            found = await admin.get(path)
            assert found.status == 200
            ended.set()

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while not ended.is_set():
                with trio.fail_after(10 * PAUSE):
                    await client.get()
                served.append(trio.current_time())
                await trio.sleep(PAUSE / 4)
        # each of the pauses was long enough for a request
        assert trio.current_time() - began >= 19 * PAUSE
        assert max(later - earlier for earlier, later in itertools.pairwise(served)) <= PAUSE
        assert len(served) > 20


async def test_few_connections_are_answered_without_a_pause(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=75.0)) as site:
        await idle_clients(site, 3)
        began = trio.current_time()
        answer = await Serving(site.server, current_host().poller, lambda: 0).answer(EVERYTHING, 1)
        assert (trio.current_time() - began, answer.matching) == (0.0, 3)


async def test_an_answer_that_nobody_waits_for_any_more_leaves_nothing_behind(
    small_pieces: int, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(idle=75.0)) as site:
        await idle_clients(site, 10)
        answering = Serving(site.server, current_host().poller, lambda: 0)
        armed = len(current_host().poller.timers) - current_host().poller.timers.zombies
        for pauses in (0.5, 1.5, 2.5):
            with trio.move_on_after(pauses * PAUSE) as scope:
                await answering.answer(EVERYTHING, 1)
            assert scope.cancelled_caught
        timers = current_host().poller.timers
        assert len(timers) - timers.zombies == armed
        assert (await answering.answer(EVERYTHING, 1)).matching == 10


async def test_the_server_may_drain_while_a_question_is_answered(small_pieces: int, autojump_clock: MockClock) -> None:
    async def slow(exchange: Exchange) -> None:
        await trio.sleep(1)
        await hello(exchange)

    async with serving(slow, timeouts=only(idle=75.0)) as site, trio.open_nursery() as nursery:
        clients = [await site.connect() for _ in range(10)]
        for client in clients:
            await client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await trio.sleep(0.5)
        answering = Serving(site.server, current_host().poller, lambda: 0)
        answers: list[object] = []

        async def ask() -> None:
            answers.append(await answering.answer(EVERYTHING, 1))

        nursery.start_soon(ask)
        await trio.sleep(PAUSE)
        site.server.shutdown()
        await trio.sleep(100 * PAUSE)
        assert len(answers) == 1


def lates(sizes: Sequence[int]) -> list[int]:
    return [size // PIECE for size in sizes]


async def test_pieces_grow_while_the_event_loop_comes_back_late(mock_clock: MockClock) -> None:
    async def pause(late: float) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work.pause)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(PAUSE + late)
        return work.size

    work = Pieces(15 * PIECE)
    assert work.size == PIECE
    assert lates([await pause(late) for late in (0.0, 0.004, 0.006, 0.021, 0.1, 0.0)]) == [1, 1, 2, 5, 21, 1]


async def test_there_are_so_many_pieces_at_most() -> None:
    assert Pieces(MOST_PIECES * PIECE).size == PIECE
    assert Pieces(MOST_PIECES * PIECE * 5 + 1).size == 5 * PIECE + 1
