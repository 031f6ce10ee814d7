"""The signal handlers that a forked child of the application gets: those from before the server's own.

Facts      A child that is forked and does not execute another program keeps Python's signal handlers, and the
           descriptor that a signal wakes the event loop by.
Hazard     A child of multiprocessing would answer SIGTERM with a drain of its own, and not end. Its signals would wake
           its parent's loop. A signal that comes before the child has other handlers is lost.
Answer     The signals are blocked during the fork, and the child unblocks them when it has its handlers.
Cost       Two system calls per fork.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import Any

# what a child gets: the handlers that were installed before the server's, by signal; empty if there is no server
_handlers: dict[signal.Signals, Any] = {}

# of the threads that fork now: the signals that were blocked before
_masks: dict[int, set[Any]] = {}


def children_get(handlers: Mapping[signal.Signals, Any]) -> None:
    """Let forked children have these handlers from now on; an empty mapping changes nothing in a child."""
    _handlers.clear()
    _handlers.update(handlers)


def _before_fork() -> None:
    if _handlers:
        _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, _handlers)


def _after_fork() -> None:
    mask = _masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    if _handlers:
        signal.set_wakeup_fd(-1)
        for number, handler in _handlers.items():
            signal.signal(number, handler)
        _handlers.clear()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
