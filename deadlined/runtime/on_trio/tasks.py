"""Trio's contained tasks: an inner task that runs foreign code, and an outer one that waits for it.

Facts      In trio a task that fails cancels the tasks of its nursery. Making a task costs more instructions than a
           small request; waking one costs a seventh of such a request.
Answer     Each inner task has a nursery of its own, in an outer task that catches what ends it. An inner task runs
           foreign code again if it was not cancelled, and if its scope stack and its nurseries are those that it began
           with (`guard.py`). Ctrl-C interrupts foreign code, and nothing else in these tasks; the main task gets it.
Cost       Two tasks, which are kept. One call per suspension.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final

import trio
from trio.lowlevel import checkpoint_if_cancelled, current_task, current_trio_token

from ...timers import COMPILED
from ..tasks import ContainedTask, ContainedTasks
from .context import RunInContextCopy, TaskContext
from .guard import AbandonedGenerators, Generators, TaskGuard
from .instruments import runs_in_asyncio
from .interruptible import interrupt_main_task, uninterrupted
from .parking import TaskParker
from .pump import Pump
from .suspend_hook import run_hooked
from .suspension import SuspendHook
from .turn_end import TurnEnd

_log: Final = logging.getLogger("deadlined.runtime")

# a name of this module, which compiled code finds faster than another's
_COMPILED: Final = COMPILED


class TrioTasks(ContainedTasks):
    """The outer tasks' nursery. They, and foreign code, run in copies of the context of the code that makes this
    object."""

    def __init__(self, pump: Pump) -> None:
        self.parks = True
        self._pump: Final = pump
        self.origin: Final = copy_context()
        self.generators: Final = AbandonedGenerators()
        self._manager = trio.open_nursery()
        self._nursery: trio.Nursery | None = None
        self._token = current_trio_token()
        self._turn_end: Final = TurnEnd()

    async def __aenter__(self) -> ContainedTasks:
        self._nursery = await self._manager.__aenter__()
        self.generators.install()
        if not runs_in_asyncio():
            self._nursery.start_soon(self._turn_end.run)
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> bool | None:
        assert self._nursery is not None
        self.generators.remove()
        self._nursery.cancel_scope.cancel()
        return await self._manager.__aexit__(kind, error, traceback)

    def new(
        self,
        body: Callable[[], Awaitable[None]],
        before_suspend: Callable[[], object],
        ended: Callable[[BaseException | None], object],
        put_off: Callable[[], bool] = bool,
    ) -> ContainedTask:
        return TrioTask(self, body, before_suspend, ended)

    def start_soon(self, function: Callable[..., Awaitable[object]]) -> None:
        """Start an outer task, not in the context of the caller: it may be a handler, whose variables an idle task
        would keep."""
        assert self._nursery is not None
        self.origin.copy().run(self._nursery.start_soon, function)

    @property
    def turns(self) -> int:
        return self._pump.turns

    def call_soon(self, function: Callable[[], object]) -> None:
        if self._turn_end.is_open:
            self._turn_end.call(function)
        else:
            self._token.run_sync_soon(function)


class TrioTask(ContainedTask):
    """An inner and an outer task. `body` is the inner one's coroutine."""

    __slots__ = (
        "_abandoned",
        "_before_suspend",
        "_body",
        "_context",
        "_ended",
        "_guard",
        "_hook",
        "_last_context",
        "_nursery",
        "_parker",
        "_tasks",
    )

    def __init__(
        self,
        tasks: TrioTasks,
        body: Callable[[], Awaitable[None]],
        before_suspend: Callable[[], object],
        ended: Callable[[BaseException | None], object],
    ) -> None:
        self._tasks: Final = tasks
        # the owner's methods; None once the task has ended, because the owner refers to this object
        self._body: Any = body
        self._before_suspend: Any = before_suspend
        self._ended: Any = ended
        self._nursery: trio.Nursery | None = None
        # drives the inner task
        self._hook: SuspendHook | None = None
        # made in `entered`, because they belong to the task that makes them
        self._context: TaskContext | None = None
        self._guard: TaskGuard | None = None
        # the context in which `run` has run foreign code last, until the task is parked
        self._last_context: Context | None = None
        self._parker: TaskParker | None = None
        # async generators that foreign code has abandoned since the task last suspended
        self._abandoned: Generators = []

    def start(self) -> None:
        # protected by a frame that trio sees: compiled, `_run` has none
        self._tasks.start_soon(partial(uninterrupted, self._run))

    def cancel(self) -> None:
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def entered(self) -> None:
        self._context = TaskContext(self._tasks.origin)
        self._guard = TaskGuard()
        self._abandoned = self._tasks.generators.collect()

    def left(self) -> None:
        self._tasks.generators.forget(self._abandoned)

    def run(self, function: Callable[[Any], Awaitable[object]], argument: Any) -> Awaitable[object]:
        foreign = RunInContextCopy(self._tasks.origin, function, argument)
        self._last_context = foreign.context
        return foreign

    def call_in_context(self, function: Callable[[], object]) -> None:
        context = self._last_context
        if context is None or context is current_task().context:
            function()
        else:
            context.run(function)

    @property
    def fresh(self) -> bool:
        return self._guard is None or not self._guard.cancelled

    @property
    def runs_now(self) -> bool:
        return self._hook is not None and self._hook.runs

    @property
    def cancels_caller(self) -> bool:
        return True

    def close_generators(self) -> Awaitable[None] | None:
        return self._close_abandoned() if self._abandoned else None

    def check(self) -> bool:
        guard = self._guard
        if guard is None or guard.intact:
            return True
        guard.abandon()
        return False

    def watch(self) -> None:
        """Do nothing: the hook is called in any case."""

    def park(self, on_cancel: Callable[[], object]) -> Awaitable[None]:
        if self._parker is None:
            self._parker = TaskParker(on_cancel)
        # the context of what ran last would be kept alive
        self._last_context = None
        if self._context is not None:
            self._context.renew()
        return self._parker

    def wake(self) -> None:
        if self._parker is not None:
            self._parker.wake()

    async def _run(self) -> None:
        """The outer task: run the inner one until it ends.

        Exceptions of the inner task are passed on and not raised. KeyboardInterrupt is meant for the program whichever
        task it hits: the main task gets it, too, and if that cannot be, it is raised. A cancellation of the whole block
        passes.
        """
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._hook = SuspendHook(self._body() if _COMPILED else uninterrupted(self._body), self._on_suspend)
                nursery.start_soon(run_hooked, self._hook)
        except BaseException as error:
            failure = error
        if failure is not None and _is_interrupt(failure):
            if not interrupt_main_task():
                raise KeyboardInterrupt from failure
            failure = KeyboardInterrupt()
        try:
            # leave here if the whole block was cancelled
            await checkpoint_if_cancelled()
            self._ended(failure)
        finally:
            # its traceback refers to this frame
            failure = None
            self._forget()

    def _forget(self) -> None:
        """Break the reference cycles of a task that has ended. Trio's tasks refer to their nurseries, and these to
        them."""
        self._body = self._before_suspend = self._ended = None
        self._nursery = self._hook = self._context = self._guard = self._parker = self._last_context = None

    def _on_suspend(self) -> None:
        if self._abandoned:
            # they cannot wait for the end of foreign code: let the host close them, as in any other task
            self._tasks.generators.hand_over(self._abandoned)
        self._before_suspend()

    async def _close_abandoned(self) -> None:
        """Close the abandoned async generators, the latest first, and those that are abandoned meanwhile. A
        cancellation is raised when all are closed."""
        cancelled: BaseException | None = None
        while self._abandoned:
            generator = self._abandoned.pop()
            try:
                await generator.aclose()
            except Exception:
                _log.exception("an async generator failed as it was closed")
            except BaseException as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled


def _is_interrupt(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_interrupt(inner) for inner in error.exceptions)
    return isinstance(error, KeyboardInterrupt)
