"""Which event loop the caller runs in, where trio and asyncio run in one thread.

Facts      Trio can be a guest of asyncio or of another loop (`trio.lowlevel.start_guest_run`), or run in a task of
           asyncio; and asyncio can run in a task of trio: `asyncio.run` in a function that is not async. Asyncio does
           not run twice in a thread. A guest runs in callbacks of its host, not in a task.
           Trio sets a name, from which sniffio knows it, while its tasks and instruments run. A loop that starts
           installs its hooks for async generators, and puts those of the loop around it back at its end. Between a
           guest and its host the hooks may be those of either.
Hazard     In a task of asyncio inside trio, the name is trio's. If that task yielded a trap of trio's, it would end,
           and trio's whole run with it: trio would schedule its own task while that runs. A forked child inherits the
           name, but not the run.
Answer     Where both run, the inner one's hooks are installed. If they are asyncio's, asyncio is inside of trio, unless
           trio is a guest. Then trio is taken for a guest of asyncio until a task of asyncio asks. As a guest does not
           run in tasks, asyncio is inside of trio then, for as long as this run of trio lasts. A child removes the
           name.
Cost       Where only one runs, a look at the name and at asyncio's running loop. Trio's own `in_trio_task` costs more
           than the rest of a sleep where no trio runs. A callback of asyncio inside of a guest is taken for trio's if
           it asks before any task has.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from sniffio import thread_local
from trio.lowlevel import RunVar, current_root_task

# True once a task of asyncio has asked during this run of trio: asyncio is inside of trio
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
    """Return True if the present run of trio is a guest of asyncio's running loop, whose hooks are installed; False if
    it is around that loop."""
    if not _is_guest():
        return False
    if sys.modules["asyncio"].current_task(loop) is not None:
        _is_around_asyncio.set(True)
    return not _is_around_asyncio.get()


def _is_guest() -> bool:
    """Return True if the present run of trio is a guest, and also if that cannot be told, because trio has renamed its
    private attributes."""
    runner = getattr(current_root_task(), "_runner", None)
    return bool(getattr(runner, "is_guest", True))


def _forget_the_parents_run() -> None:
    if thread_local.name == "trio":
        thread_local.name = None


os.register_at_fork(after_in_child=_forget_the_parents_run)
