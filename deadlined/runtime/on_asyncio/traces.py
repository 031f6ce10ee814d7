"""Whether foreign code has left a trace in the task of asyncio that ran it.

Facts      Programs tell requests apart by `asyncio.current_task()`: they keep it as a key (SQLAlchemy's scoped
           sessions), refer to it weakly (anyio), name it, set attributes of it, add callbacks for its end, cancel it.
Hazard     In a task that runs a second request any of these would mix the two up.
Answer     A task to which nothing refers, and which is as it was, cannot be told from a new one. So its references and
           weak references are counted before and after, and what it refers to itself is compared: its name, its
           attributes, its callbacks. Without the GIL references are not counted exactly, and a task class in Python
           keeps these in a dictionary: there every task counts as changed.
Cost       A microsecond. A new task per request costs several, most of them in the event loop.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from typing import Any, Final

# whether tasks can be compared
_COMPARABLE: Final = (
    sys.implementation.name == "cpython"
    and asyncio.Task.__module__ == "_asyncio"
    and bool(getattr(sys, "_is_gil_enabled", lambda: True)())
)

# names of this module, which compiled code finds faster than another's
_count: Final[Any] = sys.getrefcount
_count_weak: Final[Any] = weakref.getweakrefcount
_get_referents: Final[Any] = gc.get_referents


class Traces:
    """What foreign code could change of `task`, which has one callback for its end. Made by the task itself, before any
    foreign code has run in it."""

    __slots__ = ("_references", "_referents", "_task", "_weak_references")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task: Any = task
        # Python 3.12 makes the name when it is asked for, and each log record asks
        self._task.get_name()
        # a second callback makes a list of them, which is another referent
        self._referents: Any = _get_referents(task) if len(self._task._callbacks) == 1 else ()
        self.remember()

    def remember(self) -> None:
        """Count the references now. Those of the event loop differ from step to step."""
        task = self._task
        self._weak_references: int = _count_weak(task)
        self._references: int = _count(task)

    def none(self) -> bool:
        """Return True if the task cannot be told from a new one. Called in the same step as `remember`."""
        task = self._task
        return (
            _COMPARABLE
            and _count(task) == self._references
            and _count_weak(task) == self._weak_references
            and not task.cancelling()
            # `uncancel` does not take it back before Python 3.13
            and not task._must_cancel
            and bool(_get_referents(task) == self._referents)
        )
