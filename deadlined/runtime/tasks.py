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
        """Cancel the task, and the tasks of groups that were left open in it. On asyncio this takes a few steps, in
        which tasks begin that the foreign code has started, and the owner may prevent it (`ContainedTasks.new`)."""
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
        """Call `function()` in the context in which `run` has run foreign code last; in the caller's if there was none
        since the task was parked. May be called in `ended`."""
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
        """True if `cancel` reaches the calling task, which is this one or one that foreign code has started in it. On
        trio it reaches both, by their nurseries; on asyncio only this one, unless the foreign code passes it on."""
        raise NotImplementedError

    def close_generators(self) -> Awaitable[None] | None:
        """Return an awaitable that closes the async generators which foreign code has abandoned. None if the task need
        not close any."""
        raise NotImplementedError

    def check(self) -> bool:
        """Return True if the task can go on after foreign code that has returned: nothing was left open in it.
        Otherwise cancel what was left, and return False; the task must then end."""
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

        The functions are the owner's, and must not raise:

        `body()`            the coroutine of the task.
        `before_suspend()`  called when the task suspends: before each suspension if `parks`, else once for each
                            `ContainedTask.watch`, soon after the suspension.
        `ended(failure)`    called once, when the task has ended, unless it ends with the block. `failure` is its
                            exception; None if it has returned, or was cancelled by `cancel`. On asyncio it is a
                            CancelledError if foreign code has cancelled the task or raised one. Context variables that
                            `ended` sets are seen by no task.
        `put_off()`         called on asyncio just before `cancel` takes effect. True prevents that, because the foreign
                            code was told to end: the owner must call `cancel` again later. The end of the block then
                            cancels the task a second later than others.
        """
        raise NotImplementedError

    @property
    def turns(self) -> int:
        """Turns of the event loop so far; 0 if nobody counts them."""
        return 0

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call `function()`, which must not raise, in a later step of the event loop; if `parks`, at the end of this
        turn, unless the block ends. Context variables that it sets are seen by no task."""
        raise NotImplementedError
