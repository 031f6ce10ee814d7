"""Which event loop runs in a thread that has two.

Facts      Trio can be a guest of asyncio or of another loop (`trio.lowlevel.start_guest_run`), or run in a task of
           asyncio, and asyncio in a task of trio: `asyncio.run` in a function that is not async. Asyncio does not run
           twice in a thread. Trio sets the name by which sniffio tells it while its tasks and instruments run. A loop
           that begins installs its hooks for async generators, and puts those of the loop around it back at its end. A
           guest's hooks stay, or its host's take their place. A guest runs in callbacks of its host, not in a task.
Hazard     In a task of asyncio inside trio the name is trio's. A trap of trio's would end that task, and trio's whole
           run: its own task would be scheduled while it runs. A forked child inherits the name, but not the run.
Answer     Where both run, the hooks tell which of the two is inside of the other. If they are asyncio's and trio is a
           guest, it is one of asyncio, until a task of asyncio asks: that runs inside of trio, and so do all others of
           that run. A child removes the name.
Cost       Where only one runs, the name and a look at asyncio's running loop. Trio's own `in_trio_task` costs more than
           the rest of a sleep where no trio runs. A callback of asyncio inside of a guest that asks before any task
           has is taken for trio's.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from sniffio import thread_local
from trio.lowlevel import RunVar, current_root_task

# True once a task of asyncio has asked inside of this run of trio
_is_around_asyncio: Final[RunVar[bool]] = RunVar("deadlined_is_around_asyncio", default=False)


def trio_runs() -> bool:
    """Return True if the caller runs in trio, also if trio is a guest of asyncio. False in asyncio, also if it runs in
    a task of trio."""
    if thread_local.name != "trio":
        return False
    asyncio = sys.modules.get("asyncio")
    loop = None if asyncio is None else asyncio._get_running_loop()
    if loop is None or getattr(sys.get_asyncgen_hooks().firstiter, "__self__", None) is not loop:
        return True
    return _is_guest_of(loop)


def _is_guest_of(loop: Any) -> bool:
    """Return True if the present run of trio is a guest of asyncio's running loop, which has put its hooks in the place
    of trio's; False if it is around that loop."""
    if not _is_guest():
        return False
    if sys.modules["asyncio"].current_task(loop) is not None:
        _is_around_asyncio.set(True)
    return not _is_around_asyncio.get()


def _is_guest() -> bool:
    """Return True if the present run of trio is a guest, or if trio has renamed the attributes, private to it, that
    tell."""
    runner = getattr(current_root_task(), "_runner", None)
    return bool(getattr(runner, "is_guest", True))


def _forget_the_parents_run() -> None:
    if thread_local.name == "trio":
        thread_local.name = None


os.register_at_fork(after_in_child=_forget_the_parents_run)
