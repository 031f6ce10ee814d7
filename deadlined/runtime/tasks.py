"""Tasks that run foreign code, each of which contains what that code does to it: the protocol.

Facts      A handler is foreign code. It may suspend for ever, leave scopes and task groups open in its task, cancel the
           task, or raise anything.
Hazard     What is left in a task harms the code that runs there next. What ends a task may end the tasks around it.
Answer     A contained task ends alone: whatever ends it is passed to a callback. It runs foreign code again only if the
           code before has left nothing open in it (`check`), and, on asyncio, where programs tell requests apart by
           their tasks, only if it cannot be told from a new one (`fresh`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class ContainedTask:
    """A task whose end and whose failures concern no other task. Made by `ContainedTasks.new`. An abstract base class.

    The task's own coroutine calls `entered` at its beginning and `left` at its end.
    """

    def start(self) -> None:
        """Let the task run, in a later step of the event loop."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel the task, and the tasks of groups that were left open in it. On asyncio a few steps later, when tasks
        that the foreign code has started have begun, and not if the owner puts it off then (`ContainedTasks.new`)."""
        raise NotImplementedError

    def entered(self) -> None:
        """Note that the task has begun."""
        raise NotImplementedError

    def left(self) -> None:
        """Note that the task ends."""
        raise NotImplementedError

    def run(self, function: Callable[[Any], Awaitable[object]], argument: Any) -> Awaitable[object]:
        """Return an awaitable that runs foreign code, `function(argument)`, in a copy of the context variables of the
        code that made the `ContainedTasks`. Await it in this task, which must be `fresh`."""
        raise NotImplementedError

    def call_in_context(self, function: Callable[[], object]) -> None:
        """Call `function()` in the context in which `run` has run foreign code last; in the caller's if it has run none
        since it was parked. Also in `ended`."""
        raise NotImplementedError

    @property
    def fresh(self) -> bool:
        """True if foreign code may be run in the task."""
        raise NotImplementedError

    @property
    def runs_now(self) -> bool:
        """True if the calling task is this one."""
        raise NotImplementedError

    @property
    def cancels_caller(self) -> bool:
        """True if `cancel` reaches the calling task, which is this one or one that foreign code has started in it: on
        trio its nurseries see to that. On asyncio another task is cancelled only if the foreign code does it."""
        raise NotImplementedError

    def close_generators(self) -> Awaitable[None] | None:
        """Return an awaitable that closes the async generators which foreign code has abandoned, None if there are
        none that the task must close itself."""
        raise NotImplementedError

    def check(self) -> bool:
        """Return True if foreign code, which has returned, has left nothing open in the task. Otherwise cancel what
        it has left; the task must then end."""
        raise NotImplementedError

    def watch(self) -> None:
        """Have `before_suspend` called if the task suspends before it ends. Called by the task itself, and needed only
        if not `ContainedTasks.parks`."""
        raise NotImplementedError

    def park(self, on_cancel: Callable[[], object]) -> Awaitable[None]:
        """Return an awaitable that sleeps until `wake`. Only if `ContainedTasks.parks`.

        If a cancellation comes before the wake, `on_cancel` is called at once. It must prevent any later call of `wake`
        and must not raise.
        """
        raise NotImplementedError

    def wake(self) -> None:
        """Wake the task, which is parked. Call it once per sleep."""
        raise NotImplementedError


class ContainedTasks:
    """All contained tasks of one owner: `async with open_contained_tasks() as tasks`. An abstract base class.

    The block ends when all tasks have ended; it cancels them first.
    """

    # an idle task can be parked; and `before_suspend` is called before each suspension
    parks: bool

    async def __aenter__(self) -> ContainedTasks:
        raise NotImplementedError

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> bool | None:
        raise NotImplementedError

    def new(
        self,
        body: Callable[[], Awaitable[None]],
        before_suspend: Callable[[], object],
        ended: Callable[[BaseException | None], object],
        put_off: Callable[[], bool] = bool,
    ) -> ContainedTask:
        """Make a task, to be started with `start`.

        `body()` is its coroutine. `before_suspend()` is called when the task suspends: before each suspension if
        `parks`, else once for each `ContainedTask.watch`, soon after the suspension. `ended(failure)` is called once
        the task has ended, with its exception, or None if it has returned or was cancelled; not for tasks that end with
        the block. On asyncio foreign code may cancel the task, or raise the CancelledError of something else: then that
        is the exception. `put_off()` is called on asyncio just before a cancellation. It returns True to prevent it,
        because the foreign code has been told to end, by `put_off` itself or before. The owner must then call `cancel`
        again; the end of the block cancels the task a second later than others. None of these must raise. What `ended`
        sets in context variables no task finds.
        """
        raise NotImplementedError

    @property
    def turns(self) -> int:
        """Turns of the event loop so far; 0 if nobody counts them."""
        return 0

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call `function()`, which must not raise, in a later step of the event loop; if `parks`, at the end of this
        turn, unless the block ends. What it sets in context variables no task finds."""
        raise NotImplementedError
