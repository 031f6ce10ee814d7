"""The same test on every event loop: trio and asyncio in virtual time, uvloop in real time.

A test is an async function with the parameter `loop`, decorated with `on_each_loop`. It takes its seconds from `loop`,
which makes them short where they really pass. Where time is virtual it is compared exactly; elsewhere only that nothing
comes early, and that it comes within a bound which only a broken build exceeds.

A test fails if it leaves a task, a watched descriptor, a timer or a waiter behind, or an error that an event loop could
only log.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import Any, TypeVar, TypeVarTuple

import pytest
import trio
import uvloop
from trio.testing import MockClock

from deadlined import current_time, statistics
from deadlined.runtime import LOOPS, current_host
from tests.support.builds import CANNOT_PLAY

# seconds of real time: by then, or something is broken
SURELY = 20.0

# a second of a test, in seconds of real time
_SCALE = 0.01

# libuv opens a pipe for signals once per process, which is not a leak of the first test
uvloop.new_event_loop().close()

# seconds of real time for which the kernel may take its time to deliver what was sent, before virtual time jumps
_KERNEL = 0.002

Args = TypeVarTuple("Args")
Result = TypeVar("Result")
Operation = Callable[..., Awaitable[Any]]
Test = Callable[..., Coroutine[Any, Any, None]]


class _JumpingSelector(selectors.EpollSelector):
    """A selector that advances the time of its owner instead of waiting."""

    now = float(2**20)  # seconds; so large that adding and subtracting the tests' seconds is exact
    in_threads = 0  # calls whose results are awaited

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if self.in_threads:
            # a thread may take its time, and its result wakes the loop
            return super().select(SURELY)
        found = super().select(_KERNEL)
        if not found:
            self.now += timeout
        return found


class SteppedLoop(asyncio.SelectorEventLoop):
    """A loop of asyncio whose clock stands still while anything is ready or in a thread, and jumps to the next alarm
    otherwise."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Args], Result], *args: *Args
    ) -> asyncio.Future[Result]:
        """Call it in a thread. Time stands still until its result is there."""
        future = super().run_in_executor(executor, func, *args)
        self._jumping.in_threads += 1
        future.add_done_callback(self._note_result)
        return future

    def _note_result(self, _: object) -> None:
        self._jumping.in_threads -= 1

    async def shutdown_default_executor(self, *_: object) -> None:
        """Wait for the threads without a time limit, to which the clock would jump; Python 3.12 gives one."""
        await asyncio.SelectorEventLoop.shutdown_default_executor(self)


class Running:
    """An operation in a task of its own: whether it has ended, when, and how."""

    def __init__(self) -> None:
        self.ended: float | None = None
        self.result: Any = None
        # its exception, a cancellation included; None if it has returned or still runs
        self.error: BaseException | None = None
        self.cancelled = False
        self._cancel: Callable[[], object] = bool
        self._done: Any = None

    @property
    def pending(self) -> bool:
        return self.ended is None

    def cancel(self) -> None:
        """Cancel the task, as a user of its event loop does."""
        self._cancel()

    async def wait(self) -> None:
        """Wait until the task has ended."""
        await self._done.wait()

    async def fails_with(self, kind: type[BaseException]) -> Any:
        """Wait, and return the error, which must be of this kind."""
        await self.wait()
        assert isinstance(self.error, kind), (self.result, self.error)
        return self.error

    async def succeeds(self) -> Any:
        """Wait, and return the result."""
        await self.wait()
        assert self.error is None, self.error
        return self.result

    def note_end(self) -> None:
        """Note that the task has ended, which it may have before its first step."""
        if self.ended is None:
            self.cancelled = True
            self.ended = current_time()
            self._done.set()

    async def run(self, operation: Operation, args: tuple[Any, ...]) -> None:
        """Run the operation and keep its outcome."""
        try:
            self.result = await operation(*args)
        except Exception as error:  # kept for the test, which looks at it
            self.error = error
        except BaseException as error:
            # a cancellation, or under trio a group of some
            self.cancelled = True
            self.error = error
            raise
        finally:
            self.ended = current_time()
            self._done.set()


class Tasks:
    """Tasks of one block, which cancels what is left at its end."""

    def __init__(self, begin: Callable[[Running, Operation, tuple[Any, ...]], None]) -> None:
        self._begin = begin

    def start(self, operation: Operation, *args: Any) -> Running:
        """Run `operation(*args)` in a task."""
        running = Running()
        self._begin(running, operation, args)
        return running


class Loop:
    """The event loop that a test runs in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_trio = name == "trio"
        self.is_virtual = name != "uvloop"

    def seconds(self, number: float) -> float:
        """Return a duration for which a test may wait."""
        return number if self.is_virtual else number * _SCALE

    def after(self, number: float) -> float:
        """Return an absolute time in the future, or in the past if it is negative."""
        return current_time() + self.seconds(number)

    def is_at(self, when: float) -> bool:
        """Return True if it is `when` now; in real time if that has come, and not very long ago."""
        late = current_time() - when
        return late == 0.0 if self.is_virtual else 0.0 <= late < SURELY

    async def sleep(self, number: float) -> None:
        """Sleep as programs of this event loop do."""
        await (trio.sleep if self.is_trio else asyncio.sleep)(self.seconds(number))

    async def settle(self) -> None:
        """Let everything happen that needs no time."""
        if self.is_trio:
            await trio.testing.wait_all_tasks_blocked()
            return
        for _ in range(20):
            await asyncio.sleep(0)

    async def step(self) -> None:
        """Let every task run once that can run."""
        if self.is_trio:
            await trio.lowlevel.checkpoint()
        else:
            await asyncio.sleep(0)

    async def forever(self) -> None:
        """Sleep until cancelled."""
        await self.event().wait()

    def event(self) -> Any:
        """Make an event of this event loop's own library."""
        return trio.Event() if self.is_trio else asyncio.Event()

    @asynccontextmanager
    async def tasks(self) -> AsyncIterator[Tasks]:
        """Give an object that starts tasks, and cancel those that are left at the end of the block."""
        async with _nursery(self) if self.is_trio else _task_set(self) as tasks:
            yield tasks


@asynccontextmanager
async def _nursery(loop: Loop) -> AsyncIterator[Tasks]:
    async with trio.open_nursery() as nursery:

        def begin(running: Running, operation: Operation, args: tuple[Any, ...]) -> None:
            scope = trio.CancelScope()

            async def in_scope() -> None:
                with scope:
                    await running.run(operation, args)

            running._cancel = scope.cancel
            running._done = trio.Event()
            nursery.start_soon(in_scope)

        try:
            yield Tasks(begin)
        finally:
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _task_set(loop: Loop) -> AsyncIterator[Tasks]:
    started: list[asyncio.Task[None]] = []

    def begin(running: Running, operation: Operation, args: tuple[Any, ...]) -> None:
        task = asyncio.create_task(running.run(operation, args))
        running._cancel = task.cancel
        running._done = asyncio.Event()
        task.add_done_callback(lambda _: running.note_end())
        started.append(task)

    try:
        yield Tasks(begin)
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def pretend(monkeypatch: pytest.MonkeyPatch, look_up: Callable[[int], Awaitable[Any]]) -> None:
    """Let this event loop resolve names by `look_up(port)`."""
    host = current_host()

    async def getaddrinfo(_: object, port: int, kind: int, flags: int) -> Any:
        return await look_up(port)

    if isinstance(getattr(type(host), "getaddrinfo", None), type(pretend)):
        monkeypatch.setattr(host, "getaddrinfo", getaddrinfo)
    else:
        pytest.skip(CANNOT_PLAY)


def on_loops(*names: str) -> Callable[[Test], Callable[..., None]]:
    """Return a decorator that runs an async test on each of these event loops, with its `Loop` as `loop`."""

    def decorate(test: Test) -> Callable[..., None]:
        @functools.wraps(test)
        def run_test(**arguments: Any) -> None:
            loop = Loop(arguments.pop("loop"))
            run_on(loop, functools.partial(test, loop, **arguments))

        # pytest must see the parameters, and a function that is not async
        run_test.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
        del run_test.__wrapped__
        parametrised: Callable[..., None] = pytest.mark.parametrize("loop", names)(run_test)
        return parametrised

    return decorate


on_each_loop = on_loops(*LOOPS)
on_asyncio = on_loops("asyncio", "uvloop")
in_virtual_time = on_loops("trio", "asyncio")


def run_on(loop: Loop, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the test, and check what it leaves behind."""
    if loop.is_trio:
        trio.run(_check_leftovers, test, clock=MockClock(autojump_threshold=_KERNEL))
        return
    errors: list[dict[str, Any]] = []
    factory = SteppedLoop if loop.is_virtual else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: errors.append(context))
        runner.run(_check_tasks(test))
    assert not errors, errors


async def _check_tasks(test: Callable[[], Awaitable[None]]) -> None:
    await _check_leftovers(test)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"the test leaves tasks: {left}"


async def _check_leftovers(test: Callable[[], Awaitable[None]]) -> None:
    await test()
    found = statistics()
    if found is None:
        return
    poller = found.poller
    left = {
        "descriptors": poller.descriptors,
        "waiters": poller.parked,
        "timers": poller.timers.stored - poller.timers.zombies,
    }
    assert not any(left.values()), f"the test leaves {left}"
