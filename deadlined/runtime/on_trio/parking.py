"""How a task of trio sleeps: until a half of a descriptor is ready, expired or closed, or until it is woken.

Facts      `wait_task_rescheduled` yields a trap to trio's loop. The task then sleeps until it is rescheduled, or until
           the trap's abort function confirms that it will not be.
Hazard     Ctrl-C: trio may raise it in any Python frame, also between parking and sleeping. A waiter that is left
           parked would be rescheduled while it does not sleep, which ends the whole run.
Answer     Compiled, only trio's own frames can be interrupted, and an exception from them unparks. Interpreted, the
           sleep is protected as a whole.
Cost       The trap of a half is the same for each of its sleeps, so it is made once. Making it, with the coroutines
           around it, would cost more than the rest of a sleep.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final

from trio.lowlevel import Abort, Task, current_task, reschedule, wait_task_rescheduled

from ...poll import PARKED, Half
from ..host import Parking, ReadyCallback, Turn
from .waking import WOKEN

# names of this module, which compiled code finds faster than another's
_WOKEN: Final = WOKEN
_current_task: Final = current_task
_reschedule: Final = reschedule


def wake(waiter: Task | ReadyCallback) -> None:
    """Schedule a sleeping task, or call the callback that waits instead of one."""
    if isinstance(waiter, ReadyCallback):
        waiter.on_ready()
    else:
        _reschedule(waiter, _WOKEN)


class TrioParking(Parking):
    """Where tasks of trio wait for `half`."""

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
                # a callback may have taken the place of a cancelled task
                if half.waiter is task:
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
    """Where one task sleeps until it is woken, any number of times: `await parker`, a checkpoint.

    If a cancellation comes before the wake, `on_cancel` is called at once. It must prevent any later call of `wake` and
    must not raise. A cancellation after the wake does not end this sleep.
    """

    __slots__ = ("_on_cancel", "_task", "_trap")

    def __init__(self, on_cancel: Callable[[], object]) -> None:
        self._on_cancel = on_cancel
        self._trap: Any = None
        self._task: Any = None

    def __await__(self) -> Generator[Any, Any, None]:
        self._task = _current_task()
        if self._trap is None:
            self._trap = capture_trap(wait_task_rescheduled(partial(_abort_with, self._on_cancel)))  # noqa: ASYNC105
        (yield self._trap).unwrap()

    def wake(self) -> None:
        """Schedule the task. Call it once per sleep."""
        wake(self._task)


def _abort_with(on_cancel: Callable[[], object], _: Any) -> Abort:
    on_cancel()
    return Abort.SUCCEEDED


class TrioTurn(Turn):
    """A checkpoint before an operation on `half`, in one step of trio's loop.

    It costs less than `checkpoint_if_cancelled` before the operation and `yield_shielded` after it.
    """

    __slots__ = ("_cancellation", "_half", "_trap")

    def __init__(self, half: Half) -> None:
        self._half = half
        # holds the function that raises a cancellation that has come
        self._cancellation: list[Callable[[], object]] | None = None
        self._trap: Any = None

    def __await__(self) -> Generator[Any, Any, int]:
        cancellation = self._cancellation
        if cancellation is None:
            cancellation = self._cancellation = []
            self._trap = capture_trap(wait_task_rescheduled(partial(_keep, cancellation)))  # noqa: ASYNC105
        # an earlier one came after the last use and was raised elsewhere
        cancellation.clear()
        _reschedule(_current_task(), _WOKEN)
        yield self._trap
        if cancellation:
            cancellation.pop()()
        return self._half.reset()


def _keep(cancellation: list[Callable[[], object]], raise_cancel: Callable[[], object]) -> Abort:
    cancellation.append(raise_cancel)
    return Abort.FAILED


class YieldShielded:
    """`await yield_shielded` does what trio's `cancel_shielded_checkpoint` does: other tasks run, and a cancellation
    waits for the next checkpoint.

    After an operation that began with `checkpoint_if_cancelled` it completes a checkpoint. The task is rescheduled
    before it sleeps, which saves the outcome that trio's own function makes.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        _reschedule(_current_task(), _WOKEN)
        yield UNABORTABLE


def capture_trap(coroutine: Coroutine[Any, Any, Any]) -> object:
    """Return the first trap that one of trio's coroutines yields, and close the coroutine."""
    trap: object = coroutine.send(None)
    coroutine.close()
    return trap


def _refuse_abort(_: Any) -> Abort:
    return Abort.FAILED


UNABORTABLE: Final = capture_trap(wait_task_rescheduled(_refuse_abort))  # noqa: ASYNC105
yield_shielded: Final = YieldShielded()
