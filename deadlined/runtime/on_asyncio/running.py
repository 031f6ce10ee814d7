"""A run of an asyncio event loop that is hard to end for the foreign code in it.

Facts      `asyncio.all_tasks()` shows every task to every task, and programs cancel what it shows. A call of
           `loop.stop()` ends `run_until_complete`, although the loop can go on. A task factory is asked for the tasks
           that asyncio itself makes at the end, too.
Hazard     One request that cancels all tasks to clean up cancels the server.
Answer     The run's own tasks are not shown (`hide`). The task that is shown as the loop's main one only waits for
           them, and a cancellation of it does not reach them. A stopped loop goes on. Ctrl-C cancels the run's main
           task, as `asyncio.run` does.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from .hiding import hide, show
from .host import started_host_of

ResultT = TypeVar("ResultT")

_log = logging.getLogger("deadlined.runtime")


def run_hidden(new_loop: Callable[[], AbstractEventLoop] | None, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run `coroutine` in a new event loop, to its end. KeyboardInterrupt if Ctrl-C has ended it.

    A SystemExit that something else in the loop raises is logged, and ends the run.
    """
    runner = asyncio.Runner(loop_factory=new_loop)
    try:
        loop = runner.get_loop()
    except OSError:
        # else Python warns that it was never awaited
        coroutine.close()
        raise
    main = Task(coroutine, loop=loop)
    hide(main)
    try:
        with _interrupts_cancel(main, loop):
            return _run_on(runner, main)
    finally:
        # the runner's end cancels the tasks that are shown, and makes tasks of its own; Python's debug builds abort if
        # it finds one that has ended
        if not main.done():
            show(main)
        loop.set_task_factory(None)
        _close(runner)


def _close(runner: asyncio.Runner) -> None:
    loop = runner.get_loop()
    try:
        runner.close()
    except RuntimeError:
        # ending the executor's threads takes a thread, which may not start
        _log.warning("the event loop did not end cleanly", exc_info=True)
    host = started_host_of(loop)
    if host is not None:
        host.shut_down()


def _run_on(runner: asyncio.Runner, main: Task[ResultT]) -> ResultT:
    """Run until `main` is done, also if the loop is stopped."""
    loop = runner.get_loop()
    while True:
        try:
            return runner.run(_join(main))
        except RuntimeError as error:
            if not _tells_of_stop(error, main):
                raise
            _log.error("something has called stop() of the event loop; it goes on", exc_info=True)
            _reset_task_factory_for_a_step(loop)
        except SystemExit:
            if not main.done():
                _log.exception("a task or a callback has raised SystemExit in the event loop; it ends")
            raise


def _tells_of_stop(error: RuntimeError, main: Task[Any]) -> bool:
    """Return True if `error` says that the loop was stopped, and is not what `main` has raised."""
    raised = main.exception() if main.done() and not main.cancelled() else None
    return error is not raised and "stopped" in str(error)


async def _join(main: Task[ResultT]) -> ResultT:
    """Wait for `main`: the task that the loop's other tasks see as its main one."""
    while not main.done():
        try:
            await asyncio.wait([main])
        except asyncio.CancelledError:
            if not main.cancelling():
                _log.warning("something has cancelled the event loop's main task; it goes on")
    return main.result()


def _reset_task_factory_for_a_step(loop: AbstractEventLoop) -> None:
    """Have the runner make its task by asyncio's own factory: another one may fail."""
    factory = loop.get_task_factory()
    if factory is not None:
        loop.call_soon(loop.set_task_factory, factory)
        loop.set_task_factory(None)


@contextmanager
def _interrupts_cancel(main: Task[Any], loop: AbstractEventLoop) -> Iterator[None]:
    """Let the first SIGINT cancel `main`, and a second one raise KeyboardInterrupt at once, where SIGINT has Python's
    own handler."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupts = 0

    def on_interrupt(_: int, __: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1 or main.done():
            raise KeyboardInterrupt
        main.cancel()
        # wakes the loop
        loop.call_soon_threadsafe(lambda: None)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if interrupts:
            raise KeyboardInterrupt from None
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is on_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
