"""Handlers that are cancelled while anyio shields them, on every event loop: they go on until they have left it.

So does a plain function of FastAPI or Starlette, which runs in a thread.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from types import SimpleNamespace

import anyio
import anyio.to_thread
import pytest

from deadlined import current_time
from deadlined.http import Exchange
from deadlined.runtime import open_group
from deadlined.runtime.on_asyncio.shields import cancel, is_shielded
from tests.support.conformance import Loop, on_asyncio, on_each_loop
from tests.support.conformance_http import site_of
from tests.support.http import GET, answer

INF = math.inf


class Story:
    """What happens in a handler, and after how many seconds of the test's time: in real time it is not told when."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._start = current_time()
        self.told: list[tuple[str, float]] = []

    def tell(self, what: str) -> None:
        self.told.append((what, current_time() - self._start if self._loop.is_virtual else INF))

    def was(self, *events: tuple[str, float]) -> bool:
        """Return True if these events have come, each at its time."""
        return self.told == [(what, when if self._loop.is_virtual else INF) for what, when in events]


async def shielded(loop: Loop, story: Story) -> None:
    """Wait for ten seconds in a shield, and then without one."""
    try:
        with anyio.CancelScope(shield=True):
            await loop.sleep(4)
            with anyio.CancelScope():
                await loop.sleep(6)
            story.tell("left")
        await loop.forever()
    finally:
        story.tell("cleaned up")


@on_each_loop
async def test_a_handler_is_cancelled_when_it_has_left_its_shield(loop: Loop) -> None:
    story = Story(loop)
    async with site_of(loop, lambda exchange: shielded(loop, story), handler=2) as (site, _):
        client = await site.connect()
        assert (await client.get()).status == 504
        story.tell("answered")
        await site.until(lambda: not site.server.statistics().background)
    assert story.was(("answered", 2), ("left", 10), ("cleaned up", 10))


@on_each_loop
async def test_a_task_of_a_group_is_cancelled_when_it_has_left_its_shield(loop: Loop) -> None:
    story = Story(loop)
    async with open_group() as group:
        group.start_soon(shielded, loop, story)
        await loop.sleep(1)
        group.cancel()
    assert story.was(("left", 10), ("cleaned up", 10))


@on_each_loop
async def test_the_end_of_a_server_waits_for_what_is_shielded(loop: Loop) -> None:
    story = Story(loop)
    async with site_of(loop, lambda exchange: shielded(loop, story), drain=2) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await loop.settle()
        site.server.shutdown()
        await site.serving.succeeds()
    assert story.was(("left", 10), ("cleaned up", 10))


@on_asyncio
async def test_it_is_cancelled_once_for_all_that_wanted_it_meanwhile(loop: Loop) -> None:
    """A second cancellation would interrupt what it does to clean up after the first."""
    story = Story(loop)

    async def handler(_: Exchange) -> None:
        try:
            await shielded(loop, story)
        except asyncio.CancelledError:
            await loop.sleep(0.25)
            story.tell("rolled back")
            raise

    async with site_of(loop, handler, handler=2, drain=3.5) as (site, _):
        client = await site.connect()
        assert (await client.get()).status == 504
        site.server.shutdown()
        await site.serving.succeeds()
    assert story.was(("left", 10), ("cleaned up", 10), ("rolled back", 10.25))


@on_each_loop
async def test_a_shield_that_another_task_lifts_does_not_hold_any_more(loop: Loop) -> None:
    story = Story(loop)

    async def lift(scope: anyio.CancelScope) -> None:
        await loop.sleep(4)
        scope.shield = False
        story.tell("lifted")

    async def handler(_: Exchange) -> None:
        with anyio.CancelScope(shield=True) as scope:
            async with loop.tasks() as tasks:
                tasks.start(lift, scope)
                try:
                    await loop.forever()
                finally:
                    story.tell("cleaned up")

    async with site_of(loop, handler, handler=1.875) as (site, _):
        client = await site.connect()
        assert (await client.get()).status == 504
        await site.until(lambda: not site.server.statistics().background)
    # asyncio is not told: it is found out when it is looked at again
    assert story.was(("lifted", 4), ("cleaned up", 4 if loop.is_trio else 4.125))


@on_asyncio
async def test_a_task_that_is_cancelled_after_its_shield_was_lifted_is_not_cancelled_again(loop: Loop) -> None:
    told: list[str] = []
    scope = anyio.CancelScope(shield=True)

    async def work() -> None:
        try:
            with scope:
                await loop.forever()
        except asyncio.CancelledError:
            # after the calls that were to look at it again
            await asyncio.sleep(0.5)
            told.append("rolled back")
            raise

    task = asyncio.create_task(work())
    await loop.settle()
    cancel(task)
    scope.shield = False
    cancel(task)
    await asyncio.wait([task])
    assert told == ["rolled back"]


@on_asyncio
async def test_a_handler_that_ends_without_leaving_its_shield_is_not_looked_at_any_more(loop: Loop) -> None:
    """An async generator that a handler has not closed, for example, stays in its shield."""
    story = Story(loop)

    async def handler(_: Exchange) -> None:
        anyio.CancelScope(shield=True).__enter__()
        await loop.sleep(4)
        story.tell("returned")

    async with site_of(loop, handler, handler=2) as (site, _):
        client = await site.connect()
        assert (await client.get()).status == 504
        await site.until(lambda: not site.server.statistics().background)
        # the loop would not come to rest
        await loop.settle()
    assert story.was(("returned", 4))


@on_each_loop
async def test_a_handler_does_not_leave_its_thread_behind(loop: Loop) -> None:
    """What the handler closes in the end, the thread still uses: a database session, for example."""
    begun, go_on = threading.Event(), threading.Event()
    told: list[str] = []

    def work() -> None:
        begun.set()
        go_on.wait()
        told.append("the thread has ended")

    async def handler(exchange: Exchange) -> None:
        try:
            await anyio.to_thread.run_sync(work)
            await answer(exchange)
        finally:
            told.append("the handler has cleaned up")

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await anyio.to_thread.run_sync(begun.wait)
        client.reset()
        await site.until(lambda: site.server.statistics().background == 1)
        assert told == []
        go_on.set()
        await site.until(lambda: not site.server.statistics().background)
    assert told == ["the thread has ended", "the handler has cleaned up"]


@on_asyncio
async def test_anyio_tells_whether_a_task_is_shielded(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names are private. If it renames them, this fails, and shields do not hold."""
    task = asyncio.current_task()
    assert task is not None
    assert not is_shielded(task)
    with anyio.CancelScope(shield=True) as outer, anyio.CancelScope():  # noqa: ASYNC100
        assert is_shielded(task)
        outer.shield = False
        assert not is_shielded(task)
        outer.shield = True
        for renamed in ({}, {"_task_states": {task: 1}}, {"_task_states": {task: SimpleNamespace(cancel_scope=1)}}):
            with monkeypatch.context() as patch:
                patch.setitem(sys.modules, "anyio._backends._asyncio", SimpleNamespace(**renamed))
                assert not is_shielded(task)
    assert not is_shielded(task)
