"""A task's coroutine, with a look at each of its sleeps.

Facts      A task sleeps when its coroutine hands a word to trio's loop; every await on the way passes it on.
Hazard     A look that is put around a single await sees its end as a StopIteration, which costs thousands of
           instructions where awaiting costs some hundred.
Answer     The look is put around the whole task. Interpreted, because trio would put a frame of its own around a
           coroutine that is compiled.
Cost       A call for each sleep.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any


async def looking(task: Coroutine[Any, Any, None], look: Callable[[], object]) -> None:
    """What a task runs in place of `task` to have `look` called before each of its sleeps."""
    await _step_by_step(task, look)


@coroutine
def _step_by_step(task: Coroutine[Any, Any, None], look: Callable[[], object]) -> Generator[Any, Any, None]:
    try:
        word = task.send(None)
        while True:
            try:
                look()
                news = yield word
            except BaseException as error:
                word = task.throw(error)
            else:
                word = task.send(news)
                # an error, with all its frames, would live for as long as the task sleeps
                del news
    except StopIteration:
        return
    finally:
        # if Ctrl-C came between two steps, the task still sleeps where somebody might wake it
        task.close()
