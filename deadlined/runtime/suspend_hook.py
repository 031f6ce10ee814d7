"""Call a hook before each suspension of a task.

Facts      A task suspends when its coroutine yields a trap to the host's loop; every `await` on the way passes it on.
Hazard     A hook around a single `await` sees its end as a StopIteration, which costs thousands of instructions where
           awaiting costs some hundred.
Answer     The hook is put around the task's whole coroutine. This module is interpreted: around a compiled coroutine
           trio would put a frame of its own.
Cost       One call per suspension.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any


async def with_suspend_hook(task: Coroutine[Any, Any, None], before_suspend: Callable[[], object]) -> None:
    """Run the coroutine `task` and call `before_suspend()` before each of its suspensions. What the hook raises is
    raised in the task, where it would have suspended."""
    await _drive(task, before_suspend)


@coroutine
def _drive(task: Coroutine[Any, Any, None], before_suspend: Callable[[], object]) -> Generator[Any, Any, None]:
    try:
        trap = task.send(None)
        while True:
            try:
                before_suspend()
                outcome = yield trap
            except BaseException as error:
                trap = task.throw(error)
            else:
                trap = task.send(outcome)
                # the name would keep an error, with all its frames, for as long as the task is suspended
                del outcome
    except StopIteration:
        return
    finally:
        # Ctrl-C between two steps leaves the coroutine suspended, where somebody might still wake it
        task.close()
