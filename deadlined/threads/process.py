"""Fork and exit, which happen to all buckets of a process at once.

Facts      A fork copies the timers and not the threads, and each lock in its state of that moment. At exit the
           interpreter joins the threads that are not daemons, calls the exit handlers, and stops daemons wherever they
           are.
Hazard     A child that calls the parent's functions once more, or waits for ever for a lock whose holder does not exist
           there. A function that is stopped half way.
Answer     A child begins with empty buckets and new locks, and handles see by `here.forks` that they are the parent's.
           The exit handler closes every bucket and waits for its thread; no thread is started from then on.
Cost       Every bucket is in a weak set, under one lock when it is made.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bucket import Bucket


class Process:
    """This process: the number of `forks` since the module was imported, and whether the process is `exiting`."""

    __slots__ = ("exiting", "forks")

    def __init__(self) -> None:
        self.exiting: bool = False
        self.forks: int = 0


here: Process = Process()

# guards `all_buckets`, and lets one `take` run at a time; taken before any bucket's lock, and held during a fork
registry: threading.Lock = threading.Lock()
all_buckets: weakref.WeakSet[Bucket] = weakref.WeakSet()


def after_fork_in_child() -> None:
    """Start all buckets anew: only this thread is left, any lock may stay held, and any heap may be half changed."""
    registry.release()
    here.forks += 1
    for bucket in list(all_buckets):
        bucket.begin()


def at_exit() -> None:
    """Close all buckets, then wait for the calls that are running."""
    with registry:
        here.exiting = True
        buckets = list(all_buckets)
    for bucket in buckets:
        bucket.close()
    for bucket in buckets:
        if bucket.thread is not None:
            bucket.thread.join()


os.register_at_fork(before=registry.acquire, after_in_parent=registry.release, after_in_child=after_fork_in_child)
atexit.register(at_exit)
