"""What a forked child must close: event queues and connections that it shares with its parent.

Facts      An event queue is shared across fork. If a child deregisters a descriptor, its parent gets no more events of
           it. The parent's event loop does not go on in the child.
Hazard     A child that returns into the loop all the same, because a handler forks and does not end it, takes its
           parent's events and answers its parent's requests once more. A connection ends only when no process has it.
Answer     Each host is registered here while it exists, and closes its descriptors in the child without changing the
           queue. A server closes its sockets there, and ends a child that returns into the loop.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable


class Inherited:
    """Calls `disown` in every forked child, for as long as this object exists and was not released. `is_open` returns
    False once the owner has shut down."""

    def __init__(self, disown: Callable[[], object], is_open: Callable[[], bool]) -> None:
        self.disown = disown
        self.is_open = is_open
        _alive.add(self)

    def release(self) -> None:
        """Let children forked from now on keep what the owner has."""
        _alive.discard(self)


def end_child() -> None:
    """End a forked child that has returned into the event loop of its parent."""
    try:
        print(
            "deadlined: a forked child has returned into its parent's event loop; ending it. After os.fork() a child "
            "must end with os._exit(), as those of multiprocessing and subprocess do",
            file=sys.stderr,
            flush=True,
        )
    finally:
        # also if stderr is closed or broken
        os._exit(1)


_alive: weakref.WeakSet[Inherited] = weakref.WeakSet()


def inherited() -> list[Inherited]:
    """Return what a child that was forked now would have to close."""
    return list(_alive)


def _disown_all() -> None:
    for owner in inherited():
        owner.disown()


os.register_at_fork(after_in_child=_disown_all)
