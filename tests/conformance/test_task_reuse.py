"""Handlers that do not suspend share a task where nobody can tell, and no request learns of another."""

from __future__ import annotations

import asyncio
import contextvars
import math
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from deadlined import current_time
from deadlined.http import Exchange, Reason
from deadlined.poll.port import MAX_EVENTS
from tests.support.conformance import Loop, in_virtual_time, on_asyncio, on_each_loop
from tests.support.conformance_http import Site, cancel_own_task, site_of
from tests.support.http import answer
from tests.support.net import LOCALHOST

CLIENTS = 8
INF = math.inf

_variable = contextvars.ContextVar("variable", default="none")


def path(exchange: Exchange) -> str:
    return exchange.request.path_and_query.decode()


class Together:
    """Clients whose requests a server finds in one turn."""

    def __init__(self, site: Site, clients: list[socket.socket]) -> None:
        self.site = site
        self.clients = clients

    def ask(self) -> None:
        for number, client in enumerate(self.clients):
            client.sendall(b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n" % number)

    async def answers(self) -> list[str]:
        """Wait until each has a response, and return the bodies, or the status of one that is not 200."""
        found = [""] * len(self.clients)

        def complete() -> bool:
            for number, client in enumerate(self.clients):
                try:
                    found[number] += client.recv(65536, socket.MSG_DONTWAIT).decode()
                except BlockingIOError:
                    continue
            return all(found)

        await self.site.until(complete)
        return [text.partition("\r\n\r\n")[2] if " 200 " in text else text.split()[1] for text in found]


@asynccontextmanager
async def together(
    loop: Loop, handle: Callable[[Exchange], Awaitable[object]], /, handler: float = INF, number: int = CLIENTS
) -> AsyncIterator[Together]:
    async with site_of(loop, handle, handler=handler) as (site, _):
        clients = [socket.create_connection((LOCALHOST, site.port)) for _ in range(number)]
        await site.until(lambda: site.server.statistics().accepted == number)
        try:
            yield Together(site, clients)
        finally:
            for client in clients:
                client.close()


async def answer_path(exchange: Exchange) -> None:
    await answer(exchange, path(exchange).encode())


def paths(exchanges: int = CLIENTS) -> list[str]:
    return [f"/{number}" for number in range(exchanges)]


@on_asyncio
async def test_handlers_that_leave_no_trace_share_a_task(loop: Loop) -> None:
    identities: set[int] = set()

    async def handler(exchange: Exchange) -> None:
        identities.add(id(asyncio.current_task()))
        await answer_path(exchange)

    async with together(loop, handler) as group:
        group.ask()
        assert await group.answers() == paths()
        assert len(identities) == 1


@on_asyncio
async def test_connections_that_become_ready_after_others_get_one_worker(loop: Loop) -> None:
    # tasks are numbered as they are made, also those that find nothing to do
    numbers: list[int] = []

    async def handler(exchange: Exchange) -> None:
        task = asyncio.current_task()
        assert task is not None
        numbers.append(int(task.get_name().removeprefix("Task-")))
        await answer_path(exchange)

    polls = 4
    async with together(loop, handler, number=polls * MAX_EVENTS) as group:
        for _ in range(3):
            group.ask()
            assert await group.answers() == paths(polls * MAX_EVENTS)
        assert max(numbers) - min(numbers) < 3 * (polls + 1)


@on_asyncio
async def test_handlers_that_keep_their_task_have_one_each(loop: Loop) -> None:
    tasks: list[Any] = []

    async def handler(exchange: Exchange) -> None:
        tasks.append(asyncio.current_task())
        await answer_path(exchange)

    async with together(loop, handler) as group:
        group.ask()
        assert await group.answers() == paths()
        assert len(set(tasks)) == CLIENTS


@on_asyncio
async def test_handlers_that_keep_their_task_do_not_wait_for_each_other(loop: Loop) -> None:
    kept: list[Any] = []
    turns: list[int] = []
    turn = 0

    async def count() -> None:
        nonlocal turn
        for _ in range(200):
            turn += 1
            await asyncio.sleep(0)

    async def handler(exchange: Exchange) -> None:
        kept.append(asyncio.current_task())
        turns.append(turn)
        await answer_path(exchange)

    async with together(loop, handler, number=MAX_EVENTS) as group:
        group.ask()
        await count()
        assert await group.answers() == paths(MAX_EVENTS)
        # one poll finds them all: the first, and then all others
        assert max(turns) - min(turns) <= 2


@on_asyncio
async def test_what_a_handler_leaves_in_its_task_is_found_by_no_other(loop: Loop) -> None:
    found: list[tuple[str, bool, int, str]] = []
    ended: list[str] = []

    async def handler(exchange: Exchange) -> None:
        task: Any = asyncio.current_task()
        found.append((_variable.get(), hasattr(task, "mine"), task.cancelling(), task.get_name()))
        _variable.set(path(exchange))
        number = int(path(exchange)[1:])
        if number % 4 == 0:
            task.mine = number
        elif number % 4 == 1:
            task.set_name(f"request {number}")
        elif number % 4 == 2:
            task.add_done_callback(lambda task: ended.append(path(exchange)))
        await answer_path(exchange)
        if number % 4 == 3:
            task.cancel()

    async with together(loop, handler) as group:
        group.ask()
        assert await group.answers() == paths()
        await loop.settle()
        assert [entry[:3] for entry in found] == [("none", False, 0)] * CLIENTS
        assert not any(entry[3].startswith("request") for entry in found)
        assert ended == ["/2", "/6"]


@on_asyncio
async def test_a_handler_that_suspends_in_a_shared_task_keeps_its_variables_and_its_task(loop: Loop) -> None:
    seen: list[tuple[str, str, str, str]] = []

    async def child() -> str:
        await loop.step()
        return _variable.get()

    async def handler(exchange: Exchange) -> None:
        _variable.set(path(exchange))
        task = asyncio.current_task() if path(exchange) == "/3" else None
        if path(exchange) in ("/3", "/5"):
            await loop.step()
            in_child = await asyncio.create_task(child())
            in_thread = await asyncio.to_thread(_variable.get)
            seen.append((path(exchange), _variable.get(), in_child, in_thread))
            assert task is None or asyncio.current_task() is task
        await answer_path(exchange)

    async with together(loop, handler) as group:
        for _ in range(2):
            seen.clear()
            group.ask()
            assert await group.answers() == paths()
            assert sorted(seen) == [("/3",) * 4, ("/5",) * 4]


@in_virtual_time
async def test_no_request_waits_for_one_that_sleeps(loop: Loop) -> None:
    async def handler(exchange: Exchange) -> None:
        if path(exchange) in ("/2", "/4"):
            await loop.sleep(50)
        await answer_path(exchange)

    async with together(loop, handler) as group:
        begun = current_time()
        group.ask()
        others = [client for number, client in enumerate(group.clients) if number not in (2, 4)]
        rest = Together(group.site, others)
        assert await rest.answers() == ["/0", "/1", "/3", "/5", "/6", "/7"]
        assert current_time() - begun < 1
        slow = Together(group.site, [group.clients[2], group.clients[4]])
        assert await slow.answers() == ["/2", "/4"]
        assert current_time() - begun >= 50


@in_virtual_time
async def test_a_deadline_cancels_its_own_handler_alone(loop: Loop) -> None:
    cancelled: list[str] = []

    async def handler(exchange: Exchange) -> None:
        if path(exchange) in ("/3", "/4"):
            try:
                await loop.sleep(5 if path(exchange) == "/3" else 500)
            except BaseException:
                cancelled.append(path(exchange))
                raise
        await answer_path(exchange)

    async with together(loop, handler, handler=60) as group:
        group.ask()
        assert await group.answers() == ["/0", "/1", "/2", "/3", "504", "/5", "/6", "/7"]
        assert cancelled == ["/4"]


@in_virtual_time
async def test_a_client_that_leaves_cancels_its_own_handler_alone(loop: Loop) -> None:
    cancelled: list[str] = []

    async def handler(exchange: Exchange) -> None:
        if path(exchange) in ("/3", "/4"):
            try:
                await loop.sleep(5)
            except BaseException:
                cancelled.append(path(exchange))
                raise
        await answer_path(exchange)

    async with together(loop, handler) as group:
        group.ask()
        await loop.sleep(1)
        group.clients.pop(4).close()
        assert await group.answers() == ["/0", "/1", "/2", "/3", "/5", "/6", "/7"]
        assert cancelled == ["/4"]
        assert [record.reason for record in group.site.connections] == [Reason.CLIENT_CLOSED]


@on_each_loop
async def test_a_handler_that_cancels_its_task_at_its_end_cancels_no_other(loop: Loop) -> None:
    async def handler(exchange: Exchange) -> None:
        if path(exchange) == "/2":
            await answer_path(exchange)
            cancel_own_task(loop)
        else:
            await loop.step()
            await answer_path(exchange)

    async with together(loop, handler) as group:
        group.ask()
        assert await group.answers() == paths()


@on_asyncio
async def test_a_handler_that_fails_in_a_shared_task_fails_alone(loop: Loop) -> None:
    async def handler(exchange: Exchange) -> None:
        if path(exchange) == "/2":
            raise LookupError("lost")
        if path(exchange) == "/4":
            raise SystemExit(1)
        await answer_path(exchange)

    async with together(loop, handler) as group:
        group.ask()
        assert await group.answers() == ["/0", "/1", "500", "/3", "500", "/5", "/6", "/7"]
