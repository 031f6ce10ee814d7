"""The end of this process without its event loop, and of what must not outlive it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

# what is called before the process ends at once
_calls: list[Callable[[], object]] = []


def before_exit(call: Callable[[], object]) -> None:
    """Have `exit_now` call `call()`, which must not block or raise, in any thread or in a signal handler."""
    _calls.append(call)


def forget(call: Callable[[], object]) -> None:
    """Undo `before_exit`. Idempotent."""
    if call in _calls:
        _calls.remove(call)


def exit_now(code: int) -> NoReturn:
    """End the process with `code`: no block of Python's is left, no buffer is written."""
    try:
        for call in tuple(_calls):
            call()
    finally:
        os._exit(code)
