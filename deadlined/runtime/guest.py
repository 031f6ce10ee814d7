"""Which event loop runs in a thread that has two: trio can be a guest of asyncio (`trio.lowlevel.start_guest_run`).

Trio sets the name by which sniffio tells it while its tasks and instruments run. Its own `in_trio_task` costs more than
the rest of a sleep where no trio runs.
"""

from __future__ import annotations

from sniffio import thread_local


def trio_runs() -> bool:
    """Return True if the caller runs in trio, also if trio is a guest of asyncio."""
    return bool(thread_local.name == "trio")
