"""Children that are told when this process dies, however it dies.

Facts      Linux sends a process a signal of its choice when the thread that has started it ends (prctl(2),
           PR_SET_PDEATHSIG). The choice survives an exec, unless that gives privileges.
Hazard     A process that is killed cannot end its children, which keep their ports. A parent that dies before the child
           has chosen is not noticed.
Answer     The child chooses SIGTERM before all else, and then looks whether its parent still exists. What it calls was
           loaded before the fork.
Cost       A system call per child. Nothing is done elsewhere than on Linux.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

# of prctl(2)
_PR_SET_PDEATHSIG: Final = 1


def fork() -> int:
    """Fork as `os.fork` does. The child gets SIGTERM when this process dies, and buffered output is written once. Call
    this in the main thread. OSError as from `os.fork`."""
    sys.stdout.flush()
    sys.stderr.flush()
    end_with_parent = ending_with_parent()
    pid = os.fork()
    if not pid:
        end_with_parent()
    return pid


def ending_with_parent() -> Callable[[], None]:
    """Return a function for children that are forked from now on: one that has called it gets SIGTERM when this process
    dies. Call this in the main thread."""
    if sys.platform != "linux":
        return lambda: None
    prctl: Any = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def end_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            signal.raise_signal(signal.SIGTERM)

    return end_with_parent
