"""The context variables of foreign code that is not a handler: loggers, observers, callbacks of contained tasks."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest

from deadlined.http import Exchange
from deadlined.runtime import open_contained_tasks
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import Site, cancel_own_task, site_of
from tests.support.http import GET, answer

_variable: contextvars.ContextVar[str] = contextvars.ContextVar("contexts", default="none")


class Marking(logging.Filter):
    """A filter that notes what each record finds in the variable, and leaves a mark there."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def filter(self, record: logging.LogRecord) -> bool:
        self.found.append((record.getMessage(), _variable.get()))
        _variable.set("a logger")
        return True


@pytest.fixture
def marking() -> Iterator[Marking]:
    logger, marking = logging.getLogger("deadlined.http"), Marking()
    logger.addFilter(marking)
    yield marking
    logger.removeFilter(marking)


async def fail(_: Loop) -> None:
    raise LookupError


async def exit_process(_: Loop) -> None:
    raise SystemExit


async def be_cancelled(loop: Loop) -> None:
    cancel_own_task(loop)
    await loop.step()


@on_each_loop
@pytest.mark.parametrize("suspends", [False, True])
@pytest.mark.parametrize("end", [fail, exit_process, be_cancelled])
async def test_a_failure_is_logged_in_the_context_of_its_request(
    loop: Loop, end: Callable[[Loop], Awaitable[None]], suspends: bool, marking: Marking
) -> None:
    """And what the logger sets there, no other request finds."""
    begins: list[str] = []

    async def handler(exchange: Exchange) -> None:
        begins.append(_variable.get())
        _variable.set(exchange.request.target.decode())
        if suspends:
            await loop.step()
        await end(loop)

    async with site_of(loop, handler) as (site, _):
        for path in ("/a", "/b", "/c"):
            client = await site.connect()
            assert (await client.get(GET.replace(b" / ", b" %b " % path.encode()))).status == 500
    assert begins == ["none"] * 3
    assert marking.found == [(f"GET {path} failed", path) for path in ("/a", "/b", "/c")]


@on_each_loop
async def test_what_an_observer_sets_no_request_finds(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    # not the one of the other tests: on trio an observer may be called in the context of the test's thread
    variable = contextvars.ContextVar("of observers", default="none")
    begins: list[str] = []
    monkeypatch.setattr(Site, "request", lambda _, record: variable.set(record.target))

    async def handler(exchange: Exchange) -> None:
        begins.append(variable.get())
        exchange.start(200, [(b"connection", b"close")])
        await exchange.send(b"", False)

    async with site_of(loop, handler) as (site, _):
        for _ in range(3):
            await (await site.connect()).get()
    assert begins == ["none"] * 3


@on_each_loop
async def test_a_failure_after_the_response_is_logged_in_the_context_of_its_request(
    loop: Loop, marking: Marking
) -> None:
    async def handler(exchange: Exchange) -> None:
        _variable.set(exchange.request.target.decode())
        await answer(exchange)
        await loop.step()
        raise SystemExit

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        assert (await client.get(GET.replace(b" / ", b" /late "))).status == 200
        await site.until(lambda: not site.server.statistics().background)
        await loop.settle()
    assert [found for _, found in marking.found] == ["/late"]


@on_each_loop
@pytest.mark.parametrize("where", ["in a call of the owner", "at the end of a task"])
async def test_what_a_callback_sets_no_task_finds(loop: Loop, where: str) -> None:
    # not the one of the other tests: on trio a call of the owner runs in the context of the test's thread
    variable = contextvars.ContextVar("of callbacks", default="none")
    found: list[str] = []

    async def look(_: object) -> None:
        found.append(variable.get())

    async with open_contained_tasks() as tasks:

        async def body() -> None:
            task.entered()
            found.append(variable.get())
            await task.run(look, None)
            task.left()

        def mark(_: object = None) -> None:
            variable.set("a callback")

        for _ in range(3):
            if where == "in a call of the owner":
                tasks.call_soon(mark)
            task = tasks.new(body, bool, mark)
            task.start()
            await loop.settle()
    assert found == ["none"] * 6


@on_each_loop
async def test_a_task_does_not_begin_in_the_context_of_the_code_that_starts_it(loop: Loop) -> None:
    """It may be started by the handler of a request, and serve others for as long as the server runs."""
    found: list[str] = []

    def note(_: object = None) -> None:
        found.append(_variable.get())

    async def body() -> None:
        task.entered()
        note()
        task.left()

    async def start() -> None:
        _variable.set("another request")
        task.start()

    async with open_contained_tasks() as tasks, loop.tasks() as others:
        task = tasks.new(body, bool, note)
        await others.start(start).wait()
        await loop.settle()
    assert found == ["none", "none"]
