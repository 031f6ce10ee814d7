"""Whatever a handler does on any event loop stays its own: the next client is served, and the drain ends.

Each case is compared on trio, asyncio and uvloop. `test_isolation.py` has what only trio knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest

from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Route, Timeouts
from deadlined.runtime import LOOPS
from tests.support.on_loops import PATIENCE, Site, answer, serve_on, sleep, sleep_forever
from tests.support.runtime import exit_status_of
from tests.support.threads import run_threads

pytestmark = [
    # a generator that is left open is closed by the loop, which says so
    pytest.mark.filterwarnings("ignore:.*was garbage collected before it had been exhausted:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:asynchronous generator .* was scheduled after:ResourceWarning"),
]

ASYNCIO = [name for name in LOOPS if name != "trio"]

Act = Callable[[Receive, Send], Awaitable[object]]

# a machine that is busy for longer than the deadline of the mess must not fail the next client
UNHURRIED = [Route("/fine", frozenset(), {"handler": math.inf})]

# what a request must not be able to end by being dropped
KEPT: list[Any] = []


@pytest.fixture(autouse=True)
def drop_what_was_kept() -> Any:
    yield
    KEPT.clear()
    gc.collect()


class Mess(BaseException):
    """Not an Exception: what nobody expects."""


class MuteError(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise SystemExit(9)

    __repr__ = __str__


def app_of(act: Act) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/fine":
            await sleep(0)
            await answer(send)
        else:
            await act(receive, send)

    return app


def mess(loop: str, act: Act, expected: int | set[int], timeouts: Timeouts | None = None) -> None:
    """Serve the act twice: each time the client gets a status that is expected, and the next clients are served."""
    allowed = expected if isinstance(expected, set) else {expected}

    def clients(site: Site) -> None:
        for _ in range(2):
            assert site.status("/mess") in allowed
            assert [site.get("/fine") for _ in range(3)] == [(200, b"fine")] * 3

    serve_on(loop, app_of(act), clients, timeouts, routes=UNHURRIED)


# what it raises, and when

ERRORS: dict[str, Callable[[], BaseException]] = {
    "Exception": Exception,
    "BaseException": Mess,
    "SystemExit": lambda: SystemExit(3),
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "group": lambda: BaseExceptionGroup("several", [Mess(), ValueError(), BaseExceptionGroup("more", [SystemExit(1)])]),
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "MemoryError": MemoryError,
    "TimeoutError": TimeoutError,
    "ConnectionResetError": ConnectionResetError,
    "OSError": lambda: OSError(9, "Bad file descriptor"),
    "mute": MuteError,
}


async def at_once(make: Callable[[], BaseException], send: Send) -> None:
    raise make()


async def later(make: Callable[[], BaseException], send: Send) -> None:
    await sleep(0.001)
    raise make()


async def halfway(make: Callable[[], BaseException], send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise make()


async def after_the_answer(make: Callable[[], BaseException], send: Send) -> None:
    await answer(send)
    raise make()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("when", "expected"), [(at_once, 500), (later, 500), (halfway, -200), (after_the_answer, 200)])
def test_whatever_a_handler_raises_ends_its_own_request(
    loop: str, when: Callable[..., Awaitable[None]], expected: int
) -> None:
    def app(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        name = scope["path"][1:]
        return answer(send) if name == "fine" else when(ERRORS[name], send)

    def clients(site: Site) -> None:
        for name in ERRORS:
            assert (name, site.status(f"/{name}")) == (name, expected)
            assert (name, site.get("/fine")) == (name, (200, b"fine"))

    serve_on(loop, app, clients)


def endless(depth: int = 0) -> int:
    return endless(depth + 1)


async def recur(receive: Receive, send: Send) -> None:
    endless()


async def recur_through_awaits(receive: Receive, send: Send) -> None:
    await recur_through_awaits(receive, send)


async def take_too_much_memory(receive: Receive, send: Send) -> None:
    bytearray(1 << 62)


async def lower_the_recursion_limit(receive: Receive, send: Send) -> None:
    before = sys.getrecursionlimit()

    async def down(depth: int) -> None:
        await (down(depth - 1) if depth else answer(send))

    sys.setrecursionlimit(200)
    try:
        # in 3.11 the server's own code meets the limit; since 3.12 compiled code does not count towards it
        await down(150 if sys.version_info < (3, 12) else 400)
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("act", [recur, recur_through_awaits, take_too_much_memory, lower_the_recursion_limit])
def test_what_uses_up_the_interpreter_ends_its_own_request(loop: str, act: Act) -> None:
    mess(loop, act, 500)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_logging_handler_that_exits_does_not_end_the_server(loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise SystemExit(6)

    async def fail(receive: Receive, send: Send) -> None:
        raise ValueError

    broken = Broken()
    logging.getLogger("deadlined.http").addHandler(broken)
    try:
        mess(loop, fail, 500)
    finally:
        logging.getLogger("deadlined.http").removeHandler(broken)
    assert "SystemExit: 6" in capsys.readouterr().err


# what it sends

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}
BODY = {"type": "http.response.body", "body": b"fine"}


class Evil:
    def __bool__(self) -> bool:
        raise KeyError("evil")


MESSAGES: dict[str, tuple[list[Any], int]] = {
    "nothing": ([], 500),
    "the start only": ([START], 500),
    "the body first": ([BODY], 500),
    "two starts": ([START, START], 500),
    "after the end": ([START, BODY, BODY], 200),
    "a start after the end": ([START, BODY, START], 200),
    "half": ([START, {**BODY, "body": b"fi", "more_body": True}], -200),
    "too little": ([START, {**BODY, "body": b"fi"}], 500),
    "too much": ([START, {**BODY, "body": b"finest"}], 500),
    "a status of text": ([{**START, "status": "200"}, BODY], 500),
    "no status": ([{**START, "status": None}, BODY], 500),
    "a huge status": ([{**START, "status": 10**30}, BODY], 500),
    "an informational status": ([{**START, "status": 101}, BODY], 500),
    "headers of text": ([{**START, "headers": [("a", "b")]}, BODY], 500),
    "no headers": ([{**START, "headers": None}, BODY], 500),
    "three in a header": ([{**START, "headers": [(b"a", b"b", b"c")]}, BODY], 500),
    "a line break": ([{**START, "headers": [(b"a", b"b\r\nc: d")]}, BODY], 500),
    "a body of text": ([START, {**BODY, "body": "fine"}], 500),
    "a number": ([START, {**BODY, "body": 4}], 500),
    "no bool": ([START, {**BODY, "more_body": Evil()}], 500),
    "no type": ([{"status": 200}], 500),
    "None": ([None], 500),
    "a list": ([[1]], 500),
    "a poem": ([{"type": "http.poem"}], 500),
    "a type that is a list": ([{"type": []}], 500),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_messages_that_are_wrong_end_their_own_request(loop: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/fine":
            await answer(send)
        else:
            for message in MESSAGES[bytes.fromhex(scope["path"][1:]).decode()][0]:
                await send(message)

    def clients(site: Site) -> None:
        for name, (_, expected) in MESSAGES.items():
            assert (name, site.status("/" + name.encode().hex())) == (name, expected)
            assert (name, site.get("/fine")) == (name, (200, b"fine"))

    serve_on(loop, app, clients)


# how it hangs; it lets go when the drain cuts it, or when the test does

CUT = Timeouts(handler=0.05, drain=0.2)


async def wait_for_ever(receive: Receive, send: Send) -> None:
    await sleep_forever()


async def swallow_the_first_cancellation(receive: Receive, send: Send) -> None:
    with contextlib.suppress(BaseException):
        await sleep_forever()
    await answer(send)


async def swallow_each_cancellation(receive: Receive, send: Send) -> None:
    for _ in range(10):
        with contextlib.suppress(BaseException):
            await sleep(0.02)


async def sleep_in_a_finally(receive: Receive, send: Send) -> None:
    try:
        await sleep_forever()
    finally:
        await sleep_forever()


async def hide_behind_a_shield(receive: Receive, send: Send) -> None:
    with anyio.CancelScope(shield=True):
        await sleep(0.3)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "act",
    [
        wait_for_ever,
        swallow_the_first_cancellation,
        swallow_each_cancellation,
        sleep_in_a_finally,
        hide_behind_a_shield,
    ],
)
def test_a_handler_that_hangs_is_answered_for(loop: str, act: Act) -> None:
    mess(loop, act, 504, CUT)


# what it leaves behind


async def leave_a_scope_open(receive: Receive, send: Send) -> None:
    KEPT.append(anyio.CancelScope().__enter__())
    KEPT[-1].cancel()
    await answer(send)


async def leave_a_task_group_open(receive: Receive, send: Send) -> None:
    group = await anyio.create_task_group().__aenter__()
    group.start_soon(anyio.sleep, 0.05)
    KEPT.append(group)
    await answer(send)


async def abandon_a_generator(receive: Receive, send: Send) -> None:
    async def numbers() -> Any:
        with anyio.fail_after(3600):
            while True:
                yield 1

    await anext(numbers())
    await answer(send)


async def remove_the_hooks_of_generators(receive: Receive, send: Send) -> None:
    sys.set_asyncgen_hooks(None, None)
    await answer(send)


async def keep_the_interpreter(receive: Receive, send: Send) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(10)
    gc.disable()
    await answer(send)
    gc.enable()
    sys.setswitchinterval(before)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "act",
    [
        leave_a_scope_open,
        leave_a_task_group_open,
        abandon_a_generator,
        remove_the_hooks_of_generators,
        keep_the_interpreter,
    ],
)
def test_what_a_handler_leaves_behind_harms_nobody(loop: str, act: Act) -> None:
    # what an open scope cancels is this request's own
    mess(loop, act, {200, 500})


# what only asyncio lets it do


def running() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def myself() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def cancel_itself(receive: Receive, send: Send) -> None:
    myself().cancel()
    await sleep(0.01)


async def cancel_itself_and_answer(receive: Receive, send: Send) -> None:
    myself().cancel()
    await answer(send)


async def cancel_itself_and_sleep_after_the_answer(receive: Receive, send: Send) -> None:
    await answer(send)
    myself().cancel()
    await sleep(0.01)


async def cancel_all_tasks(receive: Receive, send: Send) -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await sleep(0.01)


async def cancel_all_others_again_and_again(receive: Receive, send: Send) -> None:
    for _ in range(10):
        for task in asyncio.all_tasks() - {myself()}:
            task.cancel()
        await sleep(0)
    await answer(send)


async def leave_a_timeout_open(receive: Receive, send: Send) -> None:
    await asyncio.timeout(0.005).__aenter__()
    await answer(send)


async def leave_a_timeout_open_and_sleep(receive: Receive, send: Send) -> None:
    await asyncio.timeout(0.005).__aenter__()
    await answer(send)
    await sleep(0.02)


async def leave_asyncios_group_open(receive: Receive, send: Send) -> None:
    group = await asyncio.TaskGroup().__aenter__()
    KEPT.append(group)
    group.create_task(asyncio.sleep(0))
    await answer(send)


async def leave_tasks_running(receive: Receive, send: Send) -> None:
    KEPT.extend(asyncio.ensure_future(sleep_forever()) for _ in range(10))
    await answer(send)


async def make_it_impossible_to_make_tasks(receive: Receive, send: Send) -> None:
    def refuse(_: Any, coroutine: Any, **__: Any) -> Any:
        coroutine.close()
        raise RuntimeError("no tasks today")

    running().set_task_factory(refuse)
    await answer(send)


async def make_tasks_of_nothing(receive: Receive, send: Send) -> None:
    def drop(_: Any, coroutine: Any, **__: Any) -> Any:
        coroutine.close()

    running().set_task_factory(drop)
    await answer(send)


async def stop_the_loop(receive: Receive, send: Send) -> None:
    running().stop()
    await answer(send)


async def stop_the_loop_again_and_again(receive: Receive, send: Send) -> None:
    for _ in range(10):
        running().stop()
        await sleep(0)
    await answer(send)


async def stop_a_loop_that_makes_no_tasks(receive: Receive, send: Send) -> None:
    await make_it_impossible_to_make_tasks(receive, send)
    running().stop()


async def close_the_loop(receive: Receive, send: Send) -> None:
    running().close()


async def run_another_loop(receive: Receive, send: Send) -> None:
    coroutine = sleep(0)
    try:
        asyncio.run(coroutine)
    finally:
        coroutine.close()


async def run_the_loop(receive: Receive, send: Send) -> None:
    running().run_forever()


async def close_all_generators(receive: Receive, send: Send) -> None:
    await running().shutdown_asyncgens()
    await answer(send)


async def close_the_threads(receive: Receive, send: Send) -> None:
    await running().shutdown_default_executor()
    await answer(send)


async def switch_debugging_on(receive: Receive, send: Send) -> None:
    running().set_debug(True)
    await answer(send)


async def replace_the_handler_of_exceptions(receive: Receive, send: Send) -> None:
    def fail(_: Any, __: Any) -> None:
        raise ValueError

    running().set_exception_handler(fail)
    running().call_soon(lambda: 1 / 0)
    await answer(send)


ASYNCIO_ACTS: list[tuple[Act, int]] = [
    (cancel_itself, 500),
    (cancel_itself_and_answer, 200),
    (cancel_itself_and_sleep_after_the_answer, 200),
    (cancel_all_tasks, 500),
    (cancel_all_others_again_and_again, 200),
    (leave_a_timeout_open, 200),
    (leave_a_timeout_open_and_sleep, 200),
    (leave_asyncios_group_open, 200),
    (leave_tasks_running, 200),
    (make_it_impossible_to_make_tasks, 200),
    (make_tasks_of_nothing, 200),
    (stop_the_loop, 200),
    (stop_the_loop_again_and_again, 200),
    (stop_a_loop_that_makes_no_tasks, 200),
    (close_the_loop, 500),
    (run_another_loop, 500),
    (run_the_loop, 500),
    (close_all_generators, 200),
    (close_the_threads, 200),
    (switch_debugging_on, 200),
    (replace_the_handler_of_exceptions, 200),
]


@pytest.mark.parametrize("loop", ASYNCIO)
@pytest.mark.parametrize(("act", "expected"), ASYNCIO_ACTS)
def test_what_a_handler_does_to_the_loop_ends_at_most_its_own_request(loop: str, act: Act, expected: int) -> None:
    if act is run_the_loop and loop == "asyncio" and sys.version_info >= (3, 13):
        pytest.skip("run_forever() in a running loop ends it since Python 3.13")
    mess(loop, act, expected)


def test_two_loops_in_two_threads_do_not_know_of_each_other() -> None:
    """Servers of each kind of loop, side by side in one process, one of them misused."""
    both = threading.Barrier(len(LOOPS), timeout=PATIENCE)

    def clients(site: Site) -> None:
        both.wait()
        assert site.status("/mess") == 500
        assert [site.get("/fine") for _ in range(3)] == [(200, b"fine")] * 3
        both.wait()

    async def fail(receive: Receive, send: Send) -> None:
        await sleep(0.001)
        raise Mess

    run_threads(*(partial(serve_on, loop, app_of(fail), clients) for loop in LOOPS))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_forked_child_serves_after_its_parent_has(loop: str) -> None:
    def serve() -> None:
        serve_on(loop, app_of(recur), lambda site: site.get("/fine"))

    serve()
    assert exit_status_of(serve) == 0
    serve()


@pytest.mark.parametrize("loop", LOOPS)
def test_an_error_knows_nothing_of_those_of_earlier_requests(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    """Tracebacks that grow from request to request fill the memory and the log."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await sleep(0)
        if scope["path"] == "/fine":
            await answer(send)
        raise SystemExit(3) if scope["path"] == "/exit" else ValueError(scope["path"])

    def clients(site: Site) -> None:
        for path in ("/exit", "/fine", "/error") * 3:
            site.get(path)

    serve_on(loop, app, clients)
    errors = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert len(errors) == 9
    # trio's nursery wraps what is no Exception
    plain = [error for error in errors if error is not None and not isinstance(error, BaseExceptionGroup)]
    assert [error.__context__ for error in plain] == [None] * len(plain)
    assert len(plain) >= 6
