"""Tasks that serve one connection after another: reused, not too many kept, and nothing handed from one to the next."""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Callable

import pytest
import trio
from trio.lowlevel import Task, current_task
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import ConnectionRecord, Exchange, Reason, RequestRecord
from deadlined.http.connection import Connection
from deadlined.http.state import CLOSED
from deadlined.http.worker import Worker
from tests.support.garbage import kept_connections
from tests.support.http import GET, LAST_GET, WORKER, Client, Site, answer, living, only, serving


class Tasks:
    """A handler that answers, and remembers the tasks that it ran in."""

    def __init__(self) -> None:
        self.seen: list[Task] = []

    async def __call__(self, exchange: Exchange) -> None:
        self.seen.append(current_task())
        await answer(exchange)


async def ask_and_leave(site: Site, request: bytes = LAST_GET) -> None:
    """One request on a connection of its own, which the server ends."""
    client = await site.connect()
    assert (await client.get(request)).status == 200
    assert await client.end() == "eof"
    await wait_all_tasks_blocked()


async def at_the_same_time(site: Site, number: int) -> list[Client]:
    """So many clients, each of which has asked once and stays."""
    clients = [await site.connect() for _ in range(number)]
    for client in clients:
        assert (await client.get()).status == 200
    return clients


async def test_connections_that_follow_each_other_have_one_task(autojump_clock: MockClock) -> None:
    tasks = Tasks()
    async with serving(tasks) as site:
        for _ in range(3):
            await ask_and_leave(site)
    assert len(tasks.seen) == 3
    assert len(set(tasks.seen)) == 1


class Busy(Tasks):
    """A handler that remembers its tasks, and is busy for a second in each."""

    async def __call__(self, exchange: Exchange) -> None:
        self.seen.append(current_task())
        await trio.sleep(1)
        await answer(exchange)


async def test_handlers_that_are_suspended_at_the_same_time_have_a_task_each(autojump_clock: MockClock) -> None:
    tasks = Busy()
    async with serving(tasks) as site, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask_and_leave, site)
    assert len(set(tasks.seen)) == 3


async def test_a_worker_that_was_woken_is_idle_no_more(autojump_clock: MockClock) -> None:
    """Two connections come at once while one worker is idle."""
    tasks = Busy()
    async with serving(tasks) as site:
        await ask_and_leave(site)
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ask_and_leave, site)
    assert len(set(tasks.seen)) == 2
    assert tasks.seen[0] in tasks.seen[1:]


async def test_a_task_that_rests_keeps_nothing_of_its_last_connection(autojump_clock: MockClock) -> None:
    """Nor does anything else: its memory is given back without the collector."""

    async with serving() as site:
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                await ask_and_leave(site)
                assert kept_connections() == []
        finally:
            gc.enable()


async def test_no_more_than_some_idle_workers_are_kept(autojump_clock: MockClock) -> None:
    async with serving(Busy()) as site:
        before = living()
        clients = [await site.connect() for _ in range(100)]
        await wait_all_tasks_blocked()
        # none is needed before a first byte comes
        assert living() == before
        for client in clients:
            await client.send(GET)
        await wait_all_tasks_blocked()
        assert living() == before + 100 * WORKER
        for client in clients:
            assert (await client.response()).status == 200
        await wait_all_tasks_blocked()
        assert living() == before + 64 * WORKER
        await ask_and_leave(site)
        assert living() == before + 64 * WORKER


async def test_a_task_whose_handler_was_cancelled_is_not_used_again(autojump_clock: MockClock) -> None:
    tasks: list[Task] = []

    async def slow_at_first(exchange: Exchange) -> None:
        tasks.append(current_task())
        await trio.sleep(0.5 if len(tasks) > 1 else 5)
        await answer(exchange)

    async with serving(slow_at_first, only(handler=1)) as site:
        before = living()
        late = await site.connect()
        assert (await late.get()).status == 504
        late.conn.close()
        await site.ended(1)
        await wait_all_tasks_blocked()
        # the one in which its connection came to its end
        assert living() == before + WORKER
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ask_and_leave, site)
        assert [await site.reason(number) for number in (1, 2, 3)] == [Reason.HANDLER_TIMEOUT, Reason.DONE, Reason.DONE]
    assert tasks[0] not in tasks[1:]


async def test_a_deadline_that_passes_while_its_task_rests_cancels_nobody(autojump_clock: MockClock) -> None:
    async def sleepy(exchange: Exchange) -> None:
        await trio.sleep(0.9)
        await answer(exchange)

    async with serving(sleepy, only(handler=1)) as site:
        for _ in range(3):
            await ask_and_leave(site)
            await trio.sleep(0.5)
        assert [await site.reason(number) for number in (1, 2, 3)] == [Reason.DONE] * 3


async def test_the_end_of_the_server_ends_tasks_that_rest(autojump_clock: MockClock) -> None:
    async with serving() as site:
        before = living()
        await at_the_same_time(site, 2)
        site.hang_up()
        await wait_all_tasks_blocked()
        assert living() == before + WORKER
        site.server.shutdown()
        await wait_all_tasks_blocked()
        # nor are there tasks that accept
        assert living() < before


class Faulty:
    """An observer that fails where it is told to."""

    def __init__(self, request: bool) -> None:
        self._request = request

    def request(self, record: RequestRecord) -> None:
        if self._request:
            raise ValueError("request")

    def connection(self, record: ConnectionRecord) -> None:
        if not self._request:
            raise ValueError("connection")


@pytest.mark.parametrize("request_fails", [True, False])
async def test_an_observer_that_fails_is_logged_and_harms_nobody(
    request_fails: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(observer=Faulty(request_fails)) as site:
        client = await site.connect()
        for _ in range(3):
            assert (await client.get()).status == 200
        client.conn.close()
        await ask_and_leave(site, LAST_GET)
        await wait_all_tasks_blocked()
        statistics = site.server.statistics()
        assert (statistics.open, statistics.accepted) == (0, 2)
        assert statistics.reasons == {Reason.CLIENT_CLOSED: 1, Reason.DONE: 1}
    failed = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(failed) == (4 if request_fails else 2)
    assert all("the observer failed" in record.getMessage() for record in failed)


# the pool at its end


@pytest.mark.parametrize("idle", [True, False], ids=["an idle worker", "no idle worker"])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
async def test_a_pool_that_is_closed_starts_nothing(closed: bool, idle: bool, autojump_clock: MockClock) -> None:
    async with serving() as site:
        await at_the_same_time(site, 2)
        await wait_all_tasks_blocked()
        pool = site.server._pool
        assert pool is not None
        first, second = (connection for connection in site.server._connections if isinstance(connection, Connection))
        workers = list(pool._idle)
        assert len(workers) == 1
        if not idle:
            pool._idle.clear()
        kept, before = len(pool._idle), living()
        # what is ready before the end is forgotten, and what gets ready after it starts nothing
        pool._ready.append(first)
        if closed:
            pool.close()
            assert pool.next() is None
        pool.schedule(second)
        pool.call_workers()
        called = kept - len(pool._idle), living() - before
        if closed:
            assert (*called, pool._coming) == (0, 0, 0)
        else:
            assert sum(called) == 2
            assert pool._coming == 2
        pool._ready.clear()


# the one timer of a worker serves its handlers one after the other


class Paced(Tasks):
    """A handler that sleeps as long as its target says, and moves its deadline if that says so."""

    async def __call__(self, exchange: Exchange) -> None:
        self.seen.append(current_task())
        seconds, _, deadline = exchange.request.target.decode()[1:].partition("/")
        if deadline:
            exchange.set_handler_deadline(trio.current_time() + float(deadline))
        await trio.sleep(float(seconds))
        await answer(exchange)


def asks(seconds: float, deadline: float | None = None) -> bytes:
    target = f"/{seconds}" if deadline is None else f"/{seconds}/{deadline}"
    return f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        # the first one's deadline, at 3, passes while the second one runs until 4
        (asks(2), asks(2), 200),
        (asks(2), asks(2, math.inf), 200),
        (asks(2, 2.5), asks(2), 200),
        (asks(2, 2.5), asks(2, math.inf), 200),
        (asks(2, math.inf), asks(2), 200),
        # its own counts
        (asks(2), asks(4), 504),
        (asks(2, math.inf), asks(4), 504),
        (asks(2), asks(2, 1), 504),
    ],
)
@pytest.mark.parametrize("same", [True, False], ids=["one connection", "another connection"])
async def test_the_deadline_of_an_earlier_handler_does_not_cancel_the_next(
    same: bool, first: bytes, second: bytes, status: int, autojump_clock: MockClock
) -> None:
    handler = Paced()
    async with serving(handler, only(handler=3)) as site:
        client = await site.connect()
        assert (await client.get(first)).status == 200
        if not same:
            client = await site.connect()
        assert (await client.get(second)).status == status
        assert len(set(handler.seen)) == 1


@pytest.mark.parametrize(("handler_deadline", "status"), [(math.inf, 200), (5, 200), (1, 504)])
async def test_a_deadline_that_was_set_for_all_does_not_reach_the_next_handler(
    handler_deadline: float, status: int, autojump_clock: MockClock
) -> None:
    """The first handler's deadline is still in the timer, and the second one has none, or another."""
    async with serving(Paced(), only(handler=3)) as site:
        client = await site.connect()
        assert (await client.get(asks(2))).status == 200
        site.server.set_timeouts(only(handler=handler_deadline))
        assert (await client.get(asks(2))).status == status


async def test_a_timer_that_fires_between_two_handlers_does_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Paced()
    async with serving(handler, only(handler=3)) as site:
        client = await site.connect()
        for _ in range(3):
            assert (await client.get(asks(2))).status == 200
            pool = site.server._pool
            assert pool is not None
            (worker,) = pool._idle
            assert isinstance(worker, Worker)
            worker.expire(0.0)
            await trio.sleep(5)
    assert len(set(handler.seen)) == 1
    assert caplog.records == []


async def test_a_connection_is_closed_and_counted_once(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        await client.get()
        (connection,) = site.server._connections
        client.conn.close()
        await site.ended()
        connection.close()
        connection.on_ready()
        await wait_all_tasks_blocked()
        assert connection.state == CLOSED
        assert site.server.statistics().reasons == {Reason.CLIENT_CLOSED: 1}
        assert len(site.records.connections) == 1


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
async def test_an_idle_connection_outlives_a_task_that_an_earlier_handler_ends(
    tls: bool, autojump_clock: MockClock
) -> None:
    """A handler keeps the nursery of its task."""
    nurseries: list[trio.Nursery | None] = []

    async def keep(exchange: Exchange) -> None:
        nurseries.append(current_task().parent_nursery)
        await answer(exchange)

    async with serving(keep, tls=tls) as site:
        client = await site.connect()
        for number in range(3):
            assert (await client.get()).status == 200
            nursery = nurseries[number]
            assert nursery is not None
            nursery.cancel_scope.cancel()
            await wait_all_tasks_blocked()
        assert site.server.statistics().accepted == 1


def leave_a_deadline(nursery: trio.Nursery) -> None:
    nursery.cancel_scope.deadline = trio.current_time() + 1


def leave_a_shield(nursery: trio.Nursery) -> None:
    nursery.cancel_scope.shield = True


def leave_a_shielded_task(nursery: trio.Nursery) -> None:
    nursery.cancel_scope.shield = True
    nursery.start_soon(trio.sleep_forever)


@pytest.mark.parametrize("leave", [leave_a_deadline, leave_a_shield, leave_a_shielded_task])
@pytest.mark.parametrize("suspends", [False, True])
async def test_what_a_handler_leaves_in_the_nursery_of_its_task_concerns_no_other(
    leave: Callable[[trio.Nursery], None], suspends: bool, autojump_clock: MockClock
) -> None:
    """Neither the next request nor the end of the server, which would wait for what is shielded."""
    tasks: list[Task] = []

    async def handler(exchange: Exchange) -> None:
        tasks.append(current_task())
        nursery = current_task().parent_nursery
        if len(tasks) == 1:
            assert nursery is not None
            leave(nursery)
        if suspends or len(tasks) > 1:
            await trio.sleep(0.5)
        await answer(exchange)

    async with serving(handler) as site:
        client = await site.connect()
        for _ in range(4):
            assert (await client.get()).status == 200
    assert tasks[0] not in tasks[1:]
