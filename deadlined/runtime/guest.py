"""Which event loop runs in a thread that has two: trio can be a guest of asyncio (`trio.lowlevel.start_guest_run`).

Trio sets the name by which sniffio tells it while its tasks and instruments run. Its own `in_trio_task` costs more than
the rest of a sleep where no trio runs. A child that a task of trio forks inherits the name, and may run asyncio: its
parent's run does not go on there, so the name is removed.
"""

from __future__ import annotations

import os

from sniffio import thread_local


def trio_runs() -> bool:
    """Return True if the caller runs in trio, also if trio is a guest of asyncio."""
    return bool(thread_local.name == "trio")


def _forget_the_parents_run() -> None:
    if trio_runs():
        thread_local.name = None


os.register_at_fork(after_in_child=_forget_the_parents_run)
