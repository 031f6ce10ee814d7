"""What a forked child must close: event queues that it shares with its parent.

Facts      An event queue is shared across fork. If a child deregisters a descriptor, its parent gets no more events of
           it. The parent's event loop does not go on in the child.
Answer     Each host is noted here while it exists, and closes its descriptors in the child without changing them.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


class Inherited:
    """Calls `disown` in every forked child, for as long as this object exists. `is_open` tells whether the owner has
    not shut down yet."""

    def __init__(self, disown: Callable[[], object], is_open: Callable[[], bool]) -> None:
        self.disown = disown
        self.is_open = is_open
        _alive.add(self)


_alive: weakref.WeakSet[Inherited] = weakref.WeakSet()


def inherited() -> list[Inherited]:
    """Return what a child that was forked now would have to close."""
    return list(_alive)


def _disown_all() -> None:
    for owner in inherited():
        owner.disown()


os.register_at_fork(after_in_child=_disown_all)
