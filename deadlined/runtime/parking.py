"""How a task of trio sleeps: until a half of a descriptor is ready, expired or closed, or until somebody wakes it.

Facts      `wait_task_rescheduled` hands a trap to trio's loop, and the task sleeps until exactly one of two things:
           somebody reschedules it, or the trap's abort function says that nobody will.
Hazard     Ctrl-C is a third: trio may raise it in whatever Python frame runs, between parking and sleeping, too. A
           waiter that is left behind would be rescheduled while it does not sleep, which ends the whole run.
Answer     Compiled, nothing but trio's own frames can be interrupted, and what comes out of them unparks. Interpreted,
           the sleep is protected as a whole.
Cost       The trap of a half is the same for each of its sleeps, so it is made for the first and kept. Made anew,
           with the coroutines around it, it costs more than all else that a sleep does.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final

from trio.lowlevel import Abort, Task, current_task, reschedule, wait_task_rescheduled

from ..poll import PARKED, Half
from .waking import WOKEN

# names of this module, which compiled code finds faster than another's
_WOKEN: Final = WOKEN
_current_task: Final = current_task
_reschedule: Final = reschedule


class ReadyCallback:
    """Waits for a half in place of a task. An abstract base class."""

    __slots__ = ()

    def on_ready(self) -> None:
        """Called by the pump, at most once per park, when the half may be ready, has expired or was closed. Must only
        record the fact; must not block or raise."""
        raise NotImplementedError


def wake(waiter: Task | ReadyCallback) -> None:
    """Let a task that sleeps run, soon; or call whoever waits in place of one."""
    if isinstance(waiter, ReadyCallback):
        waiter.on_ready()
    else:
        _reschedule(waiter, _WOKEN)


class Parking:
    """Where the tasks that wait for `half` sleep, one at a time.

    `await parking` sleeps until the half is ready, expired or closed, and says which (the constants of `poll`). A
    checkpoint if it sleeps, none if it need not. Cancellation passes through and leaves the half as it was.
    """

    __slots__ = ("_half", "_trap")

    def __init__(self, half: Half) -> None:
        self._half: Half = half
        self._trap: Any = None

    def __await__(self) -> Generator[Any, Any, int]:
        half = self._half
        task = _current_task()
        status = half.park(task)
        while status == PARKED:
            try:
                if self._trap is None:
                    # a method of this object would make a cycle of every closed connection
                    self._trap = capture_trap(wait_task_rescheduled(partial(_abort, half)))  # noqa: ASYNC105
                outcome = yield self._trap
                if outcome is not _WOKEN:
                    outcome.unwrap()
            except BaseException:
                half.unpark()
                # the name would keep an error, and through the error's frames this one: a cycle
                outcome = None
                raise
            status = half.resume(task)
        return status


def _abort(half: Half, _: Any) -> Abort:
    half.unpark()
    return Abort.SUCCEEDED


class TaskParker:
    """Where one task sleeps until it is woken, again and again: `await bed`, a checkpoint.

    If a cancellation comes first, `leave` is called at once, and sees to it that nobody will call `wake` any more; it
    must not raise. Once woken, the task runs on, whatever happens.
    """

    __slots__ = ("_leave", "_task", "_trap")

    def __init__(self, leave: Callable[[], object]) -> None:
        self._leave = leave
        self._trap: Any = None
        self._task: Any = None

    def __await__(self) -> Generator[Any, Any, None]:
        self._task = _current_task()
        if self._trap is None:
            self._trap = capture_trap(wait_task_rescheduled(partial(_leave, self._leave)))  # noqa: ASYNC105
        (yield self._trap).unwrap()

    def wake(self) -> None:
        """Let the task run, soon. Once per sleep."""
        wake(self._task)


def _leave(leave: Callable[[], object], _: Any) -> Abort:
    leave()
    return Abort.SUCCEEDED


class ScheduledCheckpoint:
    """A checkpoint before an act on `half`, in one step of trio's loop: others run, and a cancellation that is there or
    comes meanwhile is raised. For one task at a time.

    `await turn` says what `half.reset()` says when it is over. It does what a look for a cancellation before and a
    `yield_shielded` behind an act do, for less.
    """

    __slots__ = ("_cancellation", "_half", "_trap")

    def __init__(self, half: Half) -> None:
        self._half = half
        # what raises the cancellation that has come
        self._cancellation: list[Callable[[], object]] | None = None
        self._trap: Any = None

    def __await__(self) -> Generator[Any, Any, int]:
        cancellation = self._cancellation
        if cancellation is None:
            cancellation = self._cancellation = []
            self._trap = capture_trap(wait_task_rescheduled(partial(_note, cancellation)))  # noqa: ASYNC105
        # one that came after the last turn had nothing to do with it
        cancellation.clear()
        _reschedule(_current_task(), _WOKEN)
        yield self._trap
        if cancellation:
            cancellation.pop()()
        return self._half.reset()


def _note(cancellation: list[Callable[[], object]], raise_cancel: Callable[[], object]) -> Abort:
    cancellation.append(raise_cancel)
    return Abort.FAILED


class YieldShielded:
    """`await yield_shielded`: what trio's `cancel_shielded_checkpoint` does. Others run, and a cancellation waits.

    With `checkpoint_if_cancelled` before the act it makes a checkpoint of it. The task is woken before it goes to
    sleep: trio's own way makes an outcome that says nothing.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        _reschedule(_current_task(), _WOKEN)
        yield _AWAKE


def capture_trap(coroutine: Coroutine[Any, Any, Any]) -> object:
    """What one of trio's coroutines tells its loop: it is not run any further."""
    trap: object = coroutine.send(None)
    coroutine.close()
    return trap


def _not_now(_: Any) -> Abort:
    return Abort.FAILED


_AWAKE: Final = capture_trap(wait_task_rescheduled(_not_now))  # noqa: ASYNC105
yield_shielded: Final = YieldShielded()
