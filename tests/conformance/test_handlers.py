"""What a handler may do on every event loop: tasks, scopes, time limits and variables of its own, and failures."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
import trio

from deadlined import after_func, current_time, sleep
from deadlined.asgi import AsgiHandler
from deadlined.http import Exchange, Phase, Reason
from tests.support.conformance import Loop, in_virtual_time, on_asyncio, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.http import GET, answer, hello, post, whole_body

Way = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
Ways = dict[str, Way]

_variable: contextvars.ContextVar[str] = contextvars.ContextVar("conformance", default="none")


def path(exchange: Exchange) -> str:
    return exchange.request.target.decode()


async def ask(site: Site, *targets: bytes) -> list[bytes]:
    """Send the requests in one piece on one connection; return the bodies of the answers."""
    client = await site.connect()
    await client.send(b"".join(GET.replace(b" / ", b" %b " % target) for target in targets))
    return [(await client.response()).body for _ in targets]


# context variables


@on_each_loop
@pytest.mark.parametrize("how", ["pipelined", "one after another", "at once"])
async def test_each_request_has_variables_of_its_own_in_each_step(loop: Loop, how: str) -> None:
    seen: list[list[str]] = []

    async def in_child(found: list[str]) -> None:
        await loop.step()
        found.append(_variable.get())
        _variable.set("child")

    async def handler(exchange: Exchange) -> None:
        found = [_variable.get()]
        _variable.set(path(exchange))
        await loop.step()
        found.append(_variable.get())
        async with loop.tasks() as tasks:
            await tasks.start(in_child, found).wait()
        found.append(_variable.get())
        called = loop.event()

        def call() -> None:
            found.append(_variable.get())
            called.set()

        after_func(0, call)
        await called.wait()
        if not loop.is_virtual:
            found.append(await anyio.to_thread.run_sync(_variable.get))
        found.append(_variable.get())
        seen.append(found)
        await answer(exchange)

    _variable.set("server")
    async with site_of(loop, handler) as (site, tasks):
        _variable.set("later")
        targets = [b"/%d" % number for number in range(8)]
        if how == "pipelined":
            await ask(site, *targets)
        elif how == "at once":
            for running in [tasks.start(ask, site, target) for target in targets]:
                await running.succeeds()
        else:
            client = await site.connect()
            for target in targets:
                await client.get(GET.replace(b" / ", b" %b " % target))
    _variable.set("none")
    assert sorted(found[1] for found in seen) == [f"/{number}" for number in range(8)]
    assert all(found[0] == "server" and set(found[1:]) == {found[1]} for found in seen)


@on_each_loop
async def test_variables_reach_threads(loop: Loop) -> None:
    seen: list[str] = []

    async def handler(exchange: Exchange) -> None:
        _variable.set(path(exchange))
        if loop.is_trio:
            seen.append(await trio.to_thread.run_sync(_variable.get))
        else:
            seen.append(await asyncio.to_thread(_variable.get))
        await answer(exchange)

    async with site_of(loop, handler) as (site, _):
        await ask(site, b"/one", b"/two")
    assert seen == ["/one", "/two"]


# the identity of tasks


@on_asyncio
async def test_each_request_has_a_task_of_its_own_in_all_its_steps(loop: Loop) -> None:
    tasks_of: dict[str, set[Any]] = {}

    async def handler(exchange: Exchange) -> None:
        mine = tasks_of.setdefault(path(exchange), set())
        for _ in range(3):
            mine.add(asyncio.current_task())
            await loop.step()
        body = await whole_body(exchange)
        assert body == b""
        exchange.start(200, [])
        await exchange.send(b"x", True)
        mine.add(asyncio.current_task())
        await exchange.send(b"", False)
        mine.add(asyncio.current_task())
        await loop.step()
        mine.add(asyncio.current_task())

    async with site_of(loop, handler) as (site, _):
        await ask(site, *[b"/%d" % number for number in range(6)])
        await ask(site, b"/a")
        await ask(site, b"/b")
        assert all(len(found) == 1 for found in tasks_of.values())
        assert len(set.union(*tasks_of.values())) == len(tasks_of) == 8


@on_asyncio
async def test_a_registry_by_task_does_not_mix_up_requests(loop: Loop) -> None:
    """As SQLAlchemy's async_scoped_session with scopefunc=current_task, whose users forget to remove the session."""
    sessions: dict[Any, str] = {}

    async def handler(exchange: Exchange) -> None:
        session = sessions.setdefault(asyncio.current_task(), path(exchange))
        await loop.step()
        assert sessions[asyncio.current_task()] == session
        await answer(exchange, session.encode())

    async with site_of(loop, handler) as (site, _):
        targets = [b"/%d" % number for number in range(10)]
        assert await ask(site, *targets) == targets


# task groups, scopes and time limits


def _nested(loop: Loop) -> Ways:
    """Return ways to run an operation under a time limit that does not pass, in child tasks and in scopes."""

    async def plain(operation: Callable[[], Awaitable[Any]]) -> Any:
        return await operation()

    async def anyio_group(operation: Callable[[], Awaitable[Any]]) -> Any:
        results = []

        async def keep() -> None:
            results.append(await operation())

        async with anyio.create_task_group() as group:
            group.start_soon(keep)
        return results[0]

    async def anyio_scope(operation: Callable[[], Awaitable[Any]]) -> Any:
        with anyio.fail_after(1000):
            return await operation()

    async def group(operation: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(plain(operation))
        return task.result()

    async def wait_for(operation: Callable[[], Awaitable[Any]]) -> Any:
        return await asyncio.wait_for(plain(operation), 1000)

    async def timeout(operation: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(1000):
            return await operation()

    async def both(operation: Callable[[], Awaitable[Any]]) -> Any:
        return await group(lambda: wait_for(operation))

    ways: Ways = {"plain": plain, "anyio group": anyio_group, "anyio scope": anyio_scope}
    if not loop.is_trio:
        ways |= {"TaskGroup": group, "wait_for": wait_for, "timeout": timeout, "both": both}
    return ways


WAYS = ["plain", "anyio group", "anyio scope", "TaskGroup", "wait_for", "timeout", "both"]


def way_of(loop: Loop, name: str) -> Way:
    ways = _nested(loop)
    if name not in ways:
        pytest.skip("a way of asyncio")
    return ways[name]


@on_each_loop
@pytest.mark.parametrize("way", WAYS)
async def test_a_body_is_received_in_any_task_of_the_handler(loop: Loop, way: str) -> None:
    nested = way_of(loop, way)

    async def handler(exchange: Exchange) -> None:
        body = await nested(lambda: whole_body(exchange))
        await nested(lambda: answer(exchange, body))

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        for _ in range(3):
            await client.send(post(4) + b"bo")
            await loop.settle()
            await client.send(b"dy")
            assert (await client.response("POST")).body == b"body"
        assert site.server.statistics().accepted == 1


@on_each_loop
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wait", ["receive", "wait_disconnected", "sleep"])
async def test_the_handler_deadline_cuts_any_wait_in_any_task(
    loop: Loop, way: str, wait: str, caplog: pytest.LogCaptureFixture
) -> None:
    nested = way_of(loop, way)
    ends: list[str] = []

    async def handler(exchange: Exchange) -> None:
        waits = {"receive": exchange.receive, "wait_disconnected": exchange.wait_disconnected, "sleep": loop.forever}
        try:
            await nested(waits[wait])
            await loop.forever()
        finally:
            ends.append("ended")

    with caplog.at_level(logging.ERROR):
        async with site_of(loop, handler, handler=5) as (site, _):
            client = await site.connect()
            when = loop.after(5)
            await client.send(post(10))
            assert (await client.response("POST")).status == 504
            assert loop.is_at(when)
            await site.until(lambda: ends)
            client.conn.close()
            assert await site.reason() == Reason.HANDLER_TIMEOUT
    assert not caplog.records


@on_each_loop
@pytest.mark.parametrize("way", WAYS)
async def test_a_client_in_the_middle_of_its_body_can_read_the_504(loop: Loop, way: str) -> None:
    """The close lingers, and reads what the client sends, as soon as the tasks of the handler have left the socket."""
    nested = way_of(loop, way)

    async def handler(exchange: Exchange) -> None:
        await nested(lambda: whole_body(exchange))

    async with site_of(loop, handler, handler=5) as (site, _):
        client = await site.connect()
        await client.send(post(1000) + b"some")
        await site.until(lambda: site.server.statistics().requests or site.connections)
        await loop.settle()
        await client.send(b"more")
        await loop.settle()
        await client.send(b"more")
        assert (await client.response("POST")).status == 504
        await client.conn.send_eof()
        assert await client.end() == "eof"


@on_each_loop
@pytest.mark.parametrize("way", WAYS)
async def test_a_client_that_leaves_ends_a_receive_in_any_task(loop: Loop, way: str) -> None:
    nested = way_of(loop, way)
    ends: list[str] = []

    async def handler(exchange: Exchange) -> None:
        try:
            await nested(exchange.receive)
        except BaseException as error:
            ends.append(type(error).__name__)
            raise

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(post(10))
        await site.until(lambda: site.server.statistics().phases.get(Phase.BODY))
        client.conn.close()
        assert await site.reason() == Reason.CLIENT_CLOSED
        assert ends


@in_virtual_time
async def test_a_time_limit_in_a_handler_passes_there_and_nowhere_else(loop: Loop) -> None:
    async def handler(exchange: Exchange) -> None:
        if loop.is_trio:
            with trio.move_on_after(5):
                await exchange.receive()
        else:
            task = asyncio.current_task()
            assert task is not None
            try:
                async with asyncio.timeout(5):
                    await exchange.receive()
            except TimeoutError:
                assert task.cancelling() == 0
        with anyio.move_on_after(2) as scope:
            await sleep(1000)
        assert scope.cancelled_caught
        await answer(exchange, b"%g" % (current_time() - start))

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        start = current_time()
        await client.send(post(3))
        await loop.sleep(1)
        assert (await client.response("POST")).body == b"7"


@on_each_loop
async def test_a_time_limit_around_a_send_resets_the_connection(loop: Loop) -> None:
    seen: list[str] = []

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        try:
            with anyio.fail_after(loop.seconds(5)):
                await exchange.send(bytes(2**24), False)
        except TimeoutError:
            task = None if loop.is_trio else asyncio.current_task()
            seen.append(f"{task.cancelling() if task else 0} left")
            raise

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(GET)
        # a piece of a response is missing: nothing can follow it
        await site.until(lambda: seen)
        assert seen == ["0 left"]
        assert await client.end() == "reset"
        assert await site.reason() == Reason.SERVER_ERROR


@on_asyncio
@pytest.mark.parametrize("how", ["cancelled", "drained"])
async def test_a_handler_that_is_cut_has_time_to_clean_up(loop: Loop, how: str) -> None:
    """Nothing but a second cancellation would prevent it: in asyncio a first one is raised only once."""
    ends: list[str] = []

    async def handler(exchange: Exchange) -> None:
        try:
            await loop.forever()
        finally:
            # as a rollback in a database: real seconds, also where others are scaled
            await asyncio.sleep(0.3)
            ends.append("clean")

    async with site_of(loop, handler, drain=1) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await site.until(lambda: site.server.statistics().phases.get(Phase.HANDLER))
        if how == "cancelled":
            site.serving.cancel()
        else:
            site.server.shutdown()
        await site.serving.wait()
        assert ends == ["clean"]


async def cancel_own_task(loop: Loop) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await loop.step()


async def await_what_was_cancelled(loop: Loop) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@on_asyncio
@pytest.mark.parametrize("act", [cancel_own_task, await_what_was_cancelled])
async def test_a_cancellation_that_is_not_the_servers_is_a_failure(
    loop: Loop, act: Callable[[Loop], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    """Of the request, and of nothing else; the log says where it came from."""

    async with site_of(loop, lambda exchange: act(loop)) as (site, _):
        assert (await (await site.connect()).get()).status == 500
        assert (await (await site.connect()).get()).status == 500
        assert site.serving.pending
    first, second = caplog.records
    assert first.getMessage() == second.getMessage() == "GET / failed"
    assert "asyncio.exceptions.CancelledError" in caplog.text
    assert f"in {act.__name__}" in caplog.text


@on_asyncio
async def test_a_cancellation_after_the_response_is_logged(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        await loop.step()
        await await_what_was_cancelled(loop)

    async with site_of(loop, handler) as (site, _):
        assert (await (await site.connect()).get()).status == 200
        await loop.step()
    assert "in await_what_was_cancelled" in caplog.text


class Mess(BaseException):
    """What nobody expects."""


@on_each_loop
@pytest.mark.parametrize("error", [LookupError, SystemExit, Mess, GeneratorExit])
@pytest.mark.parametrize("first", [False, True])
async def test_any_failure_is_contained(loop: Loop, error: type[BaseException], first: bool) -> None:
    async def handler(exchange: Exchange) -> None:
        if path(exchange) == "/well":
            await answer(exchange)
            return
        if not first:
            await loop.step()
        raise error("failed")

    async with site_of(loop, handler) as (site, _):
        assert (await (await site.connect()).get()).status == 500
        assert (await (await site.connect()).get(GET.replace(b" / ", b" /well "))).status == 200


# work after the response


@on_each_loop
async def test_work_after_the_response_does_not_hold_the_connection(loop: Loop) -> None:
    done: list[str] = []

    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        _variable.set(path(exchange))
        await loop.sleep(50)
        done.append(_variable.get())

    async with site_of(loop, handler) as (site, _):
        assert await ask(site, b"/1", b"/2", b"/3") == [b"hello"] * 3
        await site.until(lambda: site.server.statistics().background == 3 or done)
        await site.until(lambda: len(done) == 3)
        assert sorted(done) == ["/1", "/2", "/3"]
        assert site.server.statistics().background == 0
        assert site.server.statistics().accepted == 1


@on_each_loop
async def test_a_drain_waits_for_work_after_the_response_and_cuts_it(loop: Loop) -> None:
    ends: list[str] = []

    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        try:
            await loop.forever()
        finally:
            ends.append("cut")

    async with site_of(loop, handler, drain=5) as (site, _):
        client = await site.connect()
        await client.get()
        client.conn.close()
        await site.until(lambda: site.server.statistics().background == 1)
        when = loop.after(5)
        site.server.shutdown()
        await site.serving.succeeds()
        assert loop.is_at(when)
        assert ends == ["cut"]


@on_each_loop
async def test_the_handler_deadline_cuts_work_after_the_response(loop: Loop) -> None:
    ends: list[float] = []

    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        try:
            await loop.forever()
        finally:
            ends.append(current_time())

    async with site_of(loop, handler, handler=5) as (site, _):
        client = await site.connect()
        await client.get()
        when = loop.after(5 if loop.is_virtual else 0)
        await site.until(lambda: ends)
        assert ends[0] == when if loop.is_virtual else ends[0] >= when
        assert (await client.get()).status == 200


# ASGI


@on_each_loop
async def test_an_application_streams_in_a_task_and_watches_the_client_in_another(loop: Loop) -> None:
    """As Starlette's StreamingResponse does."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def stream() -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(3):
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                await loop.step()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            group.cancel_scope.cancel()

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(stream)
            group.start_soon(watch)

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        assert await ask(site, *[b"/"] * 5) == [b"xxx"] * 5
        assert site.server.statistics().accepted == 1


@on_each_loop
async def test_send_and_receive_are_started_as_tasks(loop: Loop) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        async with loop.tasks() as tasks:
            assert (await tasks.start(receive).succeeds())["type"] == "http.request"
            start = {"type": "http.response.start", "status": 200, "headers": []}
            body = {"type": "http.response.body", "body": b"tasks"}
            if loop.is_trio:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(send, start)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(send, body)
            else:
                await asyncio.wait_for(asyncio.create_task(send(start)), 20)
                await asyncio.gather(send(body))

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        assert await ask(site, b"/") == [b"tasks"]


@on_each_loop
async def test_hello_is_served_by_every_way(loop: Loop) -> None:
    async with site_of(loop, hello) as (site, _):
        assert await ask(site, b"/", b"/") == [b"hello", b"hello"]
