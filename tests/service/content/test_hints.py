"""What is said of an application that runs on the wrong event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import sniffio
import trio
import uvloop

from deadlined.runtime import run
from deadlined.service.content.hints import Hint, LoopHint, hint, hinting
from tests.support.command import Starter, assert_error, assert_one_line
from tests.support.command import run as run_command

HERE = str(Path(__file__))


@pytest.fixture(scope="module", autouse=True)
def warm_uvloop() -> None:
    """Let uvloop open the pipe that a process keeps for its signals, before descriptors are counted."""
    uvloop.new_event_loop().close()


async def waits() -> None:
    await asyncio.sleep(1)


async def yields() -> None:
    await asyncio.sleep(0)


async def makes_a_task() -> None:
    never_run = waits()
    try:
        await asyncio.create_task(never_run)
    finally:
        never_run.close()


async def waits_for_an_event() -> None:
    await asyncio.Event().wait()


async def has_a_timeout() -> None:
    async with asyncio.timeout(1):
        await waits()


async def uses_a_thread() -> None:
    await asyncio.to_thread(print)


async def asks_for_a_loop_and_waits() -> None:
    with warnings.catch_warnings():
        # from Python 3.12 on
        warnings.simplefilter("ignore", DeprecationWarning)
        await asyncio.get_event_loop().create_future()


async def waits_in_trio() -> None:
    await trio.sleep(1)


async def yields_in_trio() -> None:
    await trio.lowlevel.checkpoint()


async def opens_a_nursery() -> None:
    async with trio.open_nursery():
        raise AssertionError("it was opened")


async def waits_for_an_event_of_trio() -> None:
    await trio.Event().wait()


async def has_a_timeout_of_trio() -> None:
    with trio.fail_after(1):
        await yields_in_trio()


async def uses_a_thread_of_trio() -> None:
    await trio.to_thread.run_sync(print)


async def waits_at_the_lowest_level() -> None:
    await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)


FOR_ASYNCIO = [waits, yields, makes_a_task, waits_for_an_event, has_a_timeout, uses_a_thread]
FOR_TRIO = [
    *(waits_in_trio, yields_in_trio, opens_a_nursery, waits_for_an_event_of_trio, has_a_timeout_of_trio),
    *(uses_a_thread_of_trio, waits_at_the_lowest_level),
]


def failure(loop: str, function: Callable[[], Awaitable[object]]) -> Exception:
    """Return what `function` raises on `loop`."""

    async def main() -> Exception:
        try:
            await function()
        except Exception as error:
            return error
        raise AssertionError("it did not fail")

    return run(loop, main)


def said(error: BaseException, loop: str) -> Hint:
    found = hint(error, loop)
    assert found is not None
    return found


@pytest.mark.parametrize("function", FOR_ASYNCIO)
def test_a_call_of_asyncio_in_trio_needs_asyncio(function: Callable[[], Awaitable[None]]) -> None:
    found = said(failure("trio", function), "trio")
    assert str(found) == "this application needs asyncio: serve it with --loop asyncio"
    assert found.frame is not None
    assert (found.frame.filename, found.frame.name) == (HERE, function.__name__)
    assert found.frame.line is not None
    assert "asyncio." in found.frame.line


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("function", FOR_TRIO)
def test_a_call_of_trio_in_asyncio_needs_trio(loop: str, function: Callable[[], Awaitable[None]]) -> None:
    found = said(failure(loop, function), loop)
    assert str(found) == "this application needs trio: serve it with --loop trio"
    assert found.frame is not None
    assert (found.frame.filename, found.frame.name) == (HERE, function.__name__)
    assert found.frame.line is not None
    assert "trio." in found.frame.line


def test_a_loop_that_was_only_asked_for_shows_by_what_is_awaited() -> None:
    assert hint(failure("trio", asks_for_a_loop_and_waits), "trio") is not None


@pytest.mark.parametrize(
    ("error", "loop"),
    [
        (RuntimeError("no running event loop"), "asyncio"),
        (RuntimeError("no running event loop"), "uvloop"),
        (RuntimeError("must be called from async context"), "trio"),
        (ValueError("no running event loop"), "trio"),
        (RuntimeError("lost"), "trio"),
        (RuntimeError("Task got bad yield: 5"), "asyncio"),
        (AttributeError("'NoneType' object has no attribute 'create'"), "trio"),
        # says that a thread has no loop at all, not that another would do
        (sniffio.AsyncLibraryNotFoundError("unknown async library, or not in async context"), "trio"),
    ],
)
def test_other_errors_say_nothing(error: Exception, loop: str) -> None:
    assert hint(error, loop) is None


def wrapped(how: str) -> Exception:
    """Return an error of another kind that has the telling one somewhere in it."""
    error: Exception = failure("trio", waits)
    try:
        if how == "cause":
            raise OSError("no connection") from error
        if how == "group":
            raise ExceptionGroup("", [ValueError(), ExceptionGroup("", [OSError(), error])])
        try:
            raise error
        finally:
            raise OSError("no connection")
    except Exception as other:
        return other


@pytest.mark.parametrize("how", ["cause", "context", "group"])
def test_what_it_follows_from_is_searched(how: str) -> None:
    found = said(wrapped(how), "trio")
    assert str(found.error) == "no running event loop"
    assert found.frame is not None
    assert found.frame.line == "await asyncio.sleep(1)"


def test_a_chain_that_bites_its_tail_ends() -> None:
    one, other = OSError(), OSError()
    one.__cause__, other.__cause__ = other, one
    assert hint(one, "trio") is None


def test_a_text_without_a_traceback_is_taken_if_there_is_nothing_better() -> None:
    text = RuntimeError("RuntimeError: no running event loop")
    assert said(text, "trio").frame is None
    text.__cause__ = failure("trio", waits)
    assert said(text, "trio").frame is not None


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def __call__(self, event: str, **fields: object) -> None:
        self.lines.append({"event": event, **fields})


def test_one_line_is_written_in_all() -> None:
    lines = Lines()
    logger = logging.getLogger("shop")
    with hinting("trio", lines):
        logger.error("lost", exc_info=LookupError("lost"))
        logger.error("plain")
        assert lines.lines == []
        for function in (waits, makes_a_task):
            logger.error("failed", exc_info=failure("trio", function))
    (line,) = lines.lines
    number = line.pop("line")
    assert line == {
        "event": "this application needs asyncio: serve it with --loop asyncio",
        "level": "warning",
        "call": "await asyncio.sleep(1)",
        "file": HERE,
        "error": "RuntimeError: no running event loop",
    }
    assert Path(HERE).read_text().splitlines()[number - 1].strip() == "await asyncio.sleep(1)"


def test_a_framework_may_replace_the_handlers_of_the_root() -> None:
    lines = Lines()
    root = logging.getLogger()
    with hinting("trio", lines):
        handlers, root.handlers[:] = root.handlers[:], []
        logging.getLogger("deadlined.http").error("failed", exc_info=failure("trio", waits))
        root.handlers[:] = handlers
    assert len(lines.lines) == 1


def test_afterwards_nothing_is_searched() -> None:
    loggers = [logging.getLogger(), logging.getLogger("deadlined")]
    before = [logger.handlers[:] for logger in loggers]
    with hinting("trio", Lines()):
        assert [len(logger.handlers) for logger in loggers] == [len(handlers) + 1 for handlers in before]
    assert [logger.handlers for logger in loggers] == before


def test_a_root_without_handlers_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    with hinting("trio", Lines()):
        assert root.handlers == []


def test_a_search_that_fails_does_not_harm_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    class SilentError(RuntimeError):
        def __str__(self) -> str:
            raise LookupError("no words")

    monkeypatch.setattr(logging, "raiseExceptions", False)
    record = logging.LogRecord("shop", logging.ERROR, "", 1, "", (), (SilentError, SilentError(), None))
    LoopHint("trio", Lines()).handle(record)


# in the command

APP = """
import asyncio
import trio

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    await asyncio.sleep(0.001)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})

async def starting(scope, receive, send):
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        raise

async def without_lifespan(scope, receive, send):
    if scope["type"] == "lifespan":
        await trio.sleep(0)

def make():
    return app
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def hints(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"].startswith("this application needs")]


def test_a_handler_on_the_wrong_loop_is_told_of_once(shop: Path, start: Starter) -> None:
    process = start("shop:app")
    assert [process.get().partition("\r\n")[0] for _ in range(3)] == ["HTTP/1.1 500 Internal Server Error"] * 3
    process.signal()
    assert process.end() == (0, "")
    (line,) = hints(process.lines)
    assert line["event"] == "this application needs asyncio: serve it with --loop asyncio"
    assert (line["call"], line["file"]) == ("await asyncio.sleep(0.001)", str(shop / "shop.py"))


def test_on_the_right_loop_there_is_nothing_to_tell_and_a_factory_is_served(shop: Path, start: Starter) -> None:
    process = start("shop:make", "--factory", "--loop", "asyncio")
    assert process.get().startswith("HTTP/1.1 200 OK\r\n")
    process.signal()
    assert process.end() == (0, "")
    assert hints(process.lines) == []


def test_a_lifespan_on_the_wrong_loop_is_told_of(shop: Path, start: Starter) -> None:
    process = start("shop:without_lifespan", "--loop", "asyncio")
    process.signal()
    assert process.end() == (0, "")
    (line,) = hints(process.lines)
    assert line["event"] == "this application needs trio: serve it with --loop trio"
    assert line["call"] == "await trio.sleep(0)"


def test_a_startup_that_fails_on_the_wrong_loop_says_so(shop: Path) -> None:
    completed = run_command("serve", "shop:starting", "--port", "0", cwd=shop)
    wanted = "no running event loop; this application needs asyncio: serve it with --loop asyncio"
    assert_error(completed, 1, f"the application failed to start: {wanted}")
    (line,) = hints([json.loads(line) for line in completed.stdout.splitlines()])
    assert line["call"] == "asyncio.get_running_loop()"


def test_a_factory_of_nothing_is_refused() -> None:
    assert_one_line(run_command("serve", "--factory"), 2, "--factory needs APP")
