"""Newcomers do not wait behind connections that are busy: a turn of the event loop accepts many."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import HttpServer
from deadlined.http.accepting import _ACCEPTS
from tests.support.http import Client, hello, serving
from tests.support.net import LOCALHOST


class AcceptedPerTurn(trio.abc.Instrument):
    """Notes how many connections each turn of the loop has accepted."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._before = server.statistics().accepted
        self.turns: list[int] = []

    def before_io_wait(self, timeout: float) -> None:
        accepted = self._server.statistics().accepted
        self.turns.append(accepted - self._before)
        self._before = accepted


async def ask_for_ever(client: Client, answers: list[int]) -> None:
    while True:
        answers.append((await client.get()).status)


@pytest.mark.parametrize("busy", [0, 1, 40])
async def test_a_turn_accepts_many_however_many_are_busy(busy: int, autojump_clock: MockClock) -> None:
    newcomers = 5 * _ACCEPTS
    answers: list[int] = []
    async with serving(hello) as site, trio.open_nursery() as nursery:
        for _ in range(busy):
            nursery.start_soon(ask_for_ever, await site.connect(), answers)
        await trio.lowlevel.checkpoint()
        while len(answers) < 3 * busy:
            await trio.lowlevel.checkpoint()
        with ExitStack() as stack:
            for _ in range(newcomers):
                # the kernel completes it without the server
                stack.enter_context(socket.create_connection((LOCALHOST, site.port)))
            already = len(answers)
            accepted = AcceptedPerTurn(site.server)
            trio.lowlevel.add_instrument(accepted)
            while sum(accepted.turns) < newcomers:
                await trio.lowlevel.checkpoint()
            trio.lowlevel.remove_instrument(accepted)
            # in the first turns nobody knows of them
            turns = accepted.turns[next(i for i, number in enumerate(accepted.turns) if number) :]
            assert all(number >= _ACCEPTS for number in turns[:-1]), turns
            assert len(turns) <= newcomers // _ACCEPTS
            # and accepting starves nobody either
            assert busy == 0 or len(answers) > already
        nursery.cancel_scope.cancel()


async def test_a_turn_does_not_accept_without_end(autojump_clock: MockClock) -> None:
    async with serving(hello) as site:
        await wait_all_tasks_blocked()
        with ExitStack() as stack:
            for _ in range(3 * _ACCEPTS):
                stack.enter_context(socket.create_connection((LOCALHOST, site.port)))
            accepted = AcceptedPerTurn(site.server)
            trio.lowlevel.add_instrument(accepted)
            await wait_all_tasks_blocked()
            trio.lowlevel.remove_instrument(accepted)
            assert sum(accepted.turns) == 3 * _ACCEPTS
            assert max(accepted.turns) == _ACCEPTS
