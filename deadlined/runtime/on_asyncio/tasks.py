"""Asyncio's contained tasks, each of which ends after the foreign code that could have left a trace in it.

Facts      Programs tell requests apart by `asyncio.current_task()` (SQLAlchemy's scoped sessions, for example), and
           cancel tasks by it. A SystemExit or KeyboardInterrupt that leaves a task leaves the event loop as well.
           A task that swallows its cancellation goes on. One that waits for tasks that it has started leaves them
           running when it is cancelled; they may be about to learn that they must end.
Hazard     A task that ran two requests would mix them up, and a cancellation that comes late would hit the next one.
Answer     A task runs foreign code again only if the code before has returned without suspending, and has left no
           trace (`traces.py`): nobody could tell it from a new task. Of what foreign code raises only a cancellation
           and KeyboardInterrupt, which is the operator's, leave the task. The block cancels each task that is left,
           again and again until it has ended, but not within a second of its last cancellation; from the block's end on
           nothing else does.
Cost       A task per request that suspends, as in other servers.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Task
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final

from ..tasks import ContainedTask, ContainedTasks
from .foreign import Foreign
from .middleware import cancel, cancelled_at
from .traces import Traces

# seconds between two cancellations of a task that is left at the end, however often the caller is cancelled: anyio does
# that in every step. A second one interrupts what a task does to clean up after the first, for example a rollback; a
# task that has swallowed the first delays the end by this time
_CANCEL_AGAIN: Final = 1.0

# turns of the event loop for which a task must have waited for one future before it is cancelled: in the first of them
# the tasks that it has started take their first step, in the second the tasks that these have started. Two more are for
# checkpoints before their first receive
_WAITED: Final = 4

# turns after which a task is cancelled even if it has not waited for so long
_MOST_TURNS: Final = 8

# a name of this module, which compiled code finds faster than another's
_current_task: Final = asyncio.current_task


class AsyncioTasks(ContainedTasks):
    """The tasks of one owner. Each, and each call, runs in a copy of the context of the code that makes this object: in
    the original no code runs, because all that come later would find what it has set there."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.parks = False
        self.loop: Final[Any] = loop
        self.origin: Final[Context] = copy_context()
        self._tasks: set[AsyncioTask] = set()
        # tasks to check in the next step of the loop: they may have suspended
        self._watched: list[AsyncioTask] = []
        self._closed = False

    async def __aenter__(self) -> ContainedTasks:
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> bool | None:
        """Cancel the tasks, again and again until all have ended. A cancellation of the caller meanwhile is raised at
        the end, else the error of the block: compiled code that suspends here would not find that error again."""
        self._closed = True
        interrupted: asyncio.CancelledError | None = None
        began = self.loop.time()
        for task in self._tasks:
            task.cancel_once_waiting()
        again_at = began + _CANCEL_AGAIN
        while self._tasks:
            now = self.loop.time()
            if now >= again_at:
                again_at = min([task.cancel_again(now, began) for task in self._tasks])
            try:
                await asyncio.wait([task.task for task in self._tasks], timeout=again_at - now)
                # the tasks' callbacks run after this one's wake
                await asyncio.sleep(0)
            except asyncio.CancelledError as cancelled:
                interrupted = cancelled
        if interrupted is not None:
            raise interrupted
        if error is not None:
            raise error
        return None

    @property
    def closed(self) -> bool:
        """True once the block ends."""
        return self._closed

    def new(
        self,
        body: Callable[[], Awaitable[None]],
        before_suspend: Callable[[], object],
        ended: Callable[[BaseException | None], object],
        put_off: Callable[[], bool] = bool,
    ) -> ContainedTask:
        return AsyncioTask(self, body, before_suspend, ended, put_off)

    def call_soon(self, function: Callable[[], object]) -> None:
        self.loop.call_soon(function, context=self.origin.copy())

    def note_start(self, task: AsyncioTask) -> None:
        """Note that `task` exists."""
        self._tasks.add(task)

    def note_end(self, task: AsyncioTask) -> bool:
        """Note that `task` has ended. Return False if the whole block ends."""
        self._tasks.discard(task)
        return not self._closed

    def watch(self, task: AsyncioTask) -> None:
        """Check in the next step of the loop whether `task` has suspended."""
        watched = self._watched
        if not watched:
            self.call_soon(self._check_watched)
        elif watched[-1] is task:
            return
        watched.append(task)

    def _check_watched(self) -> None:
        watched, self._watched = self._watched, []
        for task in watched:
            task.check_suspended()


class AsyncioTask(ContainedTask):
    """One task. `body` is its coroutine."""

    __slots__ = (
        "_before_suspend",
        "_body",
        "_cancelled",
        "_ended",
        "_failure",
        "_foreign",
        "_fresh",
        "_last_context",
        "_put_off",
        "_tasks",
        "_traces",
        "task",
    )

    def __init__(
        self,
        tasks: AsyncioTasks,
        body: Callable[[], Awaitable[None]],
        before_suspend: Callable[[], object],
        ended: Callable[[BaseException | None], object],
        put_off: Callable[[], bool],
    ) -> None:
        self._tasks: Final = tasks
        # the owner's methods; None once the task has ended, because the owner refers to this object
        self._body: Any = body
        self._before_suspend: Any = before_suspend
        self._ended: Any = ended
        self._put_off: Any = put_off
        self._failure: BaseException | None = None
        # it was cancelled by this object: a cancellation that ends the task is the owner's
        self._cancelled = False
        # False while foreign code runs in the task, and if that may have left a trace
        self._fresh = True
        # what `run` has returned, until `check`
        self._foreign: Foreign | None = None
        # the context in which `run` has run foreign code last
        self._last_context: Context | None = None
        self._traces: Traces | None = None
        # None before the task is started, and once it has ended
        self.task: Any = None

    def start(self) -> None:
        tasks = self._tasks
        context = tasks.origin.copy()
        # not by the loop's task factory, which may run the first step at once
        self.task = Task(self._run(), loop=tasks.loop, context=context)
        self.task.add_done_callback(self._on_done, context=context)
        tasks.note_start(self)

    def cancel(self) -> None:
        # the end of the block cancels it, and a second cancellation would interrupt its clean-up
        if not self._tasks.closed:
            self.cancel_once_waiting()

    def cancel_once_waiting(self, waits_for: Any = None, waited: int = 0, turns: int = 0) -> None:
        """Cancel the task once it has waited for one future for _WAITED turns, unless the owner puts that off or the
        task was cancelled in the last second. Tasks that it has started may need these turns to begin a receive, which
        tells them of the end. `waited`: for how many turns it has waited for `waits_for`. `turns`: since the first
        call."""
        if self.task is None:
            return
        # None after `asyncio.sleep(0)`
        now_for: Any = getattr(self.task, "_fut_waiter", None)
        if now_for is None or now_for is not waits_for:
            waited = 0
        if waited < _WAITED and turns < _MOST_TURNS:
            self._tasks.call_soon(partial(self.cancel_once_waiting, now_for, waited + 1, turns + 1))
        elif self._tasks.loop.time() >= cancelled_at(self.task) + _CANCEL_AGAIN and not self._put_off():
            self._cancelled = True
            cancel(self.task)

    def cancel_again(self, now: float, began: float) -> float:
        """Cancel the task, unless its last cancellation, or `began`, when the block's end began, is less than a second
        ago. Return when to ask again."""
        when = max(cancelled_at(self.task), began) + _CANCEL_AGAIN
        if now < when:
            return when
        cancel(self.task)
        return now + _CANCEL_AGAIN

    def entered(self) -> None:
        """Do nothing."""

    def left(self) -> None:
        """Do nothing."""

    def run(self, function: Callable[[Any], Awaitable[object]], argument: Any) -> Awaitable[object]:
        self._fresh = False
        if self._traces is None:
            self._traces = Traces(self.task)
        self._traces.remember()
        self._foreign = Foreign(self._tasks.origin, function, argument)
        self._last_context = self._foreign.context
        return self._foreign

    def call_in_context(self, function: Callable[[], object]) -> None:
        if self._last_context is None:
            function()
        else:
            self._last_context.run(function)

    @property
    def fresh(self) -> bool:
        return self._fresh

    @property
    def runs_now(self) -> bool:
        task = self.task
        # in a callback of the loop no task is current
        return task is not None and _current_task(self._tasks.loop) is task

    @property
    def cancels_caller(self) -> bool:
        return self.runs_now

    def close_generators(self) -> Awaitable[None] | None:
        """Return None: the event loop closes abandoned async generators in tasks of their own."""
        return None

    def check(self) -> bool:
        """Return True: what foreign code leaves open in a task of asyncio harms the task alone, which ends soon."""
        run, self._foreign = self._foreign, None
        self._fresh = run is not None and run.returned_at_once and self._traces is not None and self._traces.none()
        return True

    def watch(self) -> None:
        self._tasks.watch(self)

    def check_suspended(self) -> None:
        """Call `before_suspend` if the task has suspended."""
        if self._before_suspend is not None and not self.task.done():
            self._before_suspend()

    async def _run(self) -> None:
        try:
            await self._body()
        except KeyboardInterrupt:
            raise
        except asyncio.CancelledError as error:
            # the task would give another one, which does not say where it came from
            self._failure = None if self._cancelled else error
            raise
        except BaseException as error:
            # a SystemExit would leave the event loop
            self._failure = error

    def _on_done(self, task: Any) -> None:
        """Tell how the task has ended, also if it was cancelled before its first step."""
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
        if self._tasks.note_end(self):
            self._ended(self._failure)
        self._forget()

    def _forget(self) -> None:
        """Break the reference cycles of a task that has ended. It keeps its error, whose frames refer to this one."""
        self._body = self._before_suspend = self._ended = self._put_off = None
        self._failure = self._foreign = self._last_context = self._traces = self.task = None
