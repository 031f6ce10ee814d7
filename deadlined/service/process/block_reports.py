"""Reports of blocks of an event loop: where the code is that blocks it, once for each place, and how often."""

from __future__ import annotations

import math
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from itertools import takewhile
from types import CodeType, FrameType

from ..log.logs import Log

# seconds between two lines of the log, and the most of them: a log is for people
_PAUSE = 10.0
_MOST = 100

# characters of a stack, the innermost ones: with the rest of its line below PIPE_BUF, so that no other line comes
# between (`log/output.py`)
_LONGEST = 3000

# where a loop waits for events in Python code, and the methods by which asyncio and trio call that
_WAITING = ("/selectors.py", "/_io_epoll.py", "/_io_kqueue.py")
_WAITS = ("select", "get_events")

_LIBRARIES = tuple(sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class BlockReports:
    """The reports of blocks of the event loop of this thread. Make it in a task of the loop, and call `report` in
    another thread.

    `log` writes a line for each place once: a place is a function of the application. `note(file, function, stack)` is
    called for every block. `count`: the blocks so far; any thread may read it.
    """

    def __init__(self, log: Log, note: Callable[[str, str, str], object]) -> None:
        self._log = log
        self._note = note
        self._watched = threading.get_ident()
        # the code in which the loop itself runs: not shown
        self._outer = [frame.f_code for frame in _frames(sys._getframe())]
        self._places: set[tuple[str, str]] = set()
        self._quiet_until = -math.inf
        self.count: int = 0

    def report(self, seconds: float) -> None:
        """Count and note a block, if the loop's thread is not waiting for events by now, and log its stack unless its
        place has a line already, or another place got one just now. `seconds`: for how long the loop has not answered
        yet."""
        frames = _inside(self._outer, _frames(sys._current_frames().get(self._watched)))
        if not frames or _waits(frames):
            return
        self.count += 1
        place, stack = _place(frames), _shown(frames)
        self._note(*place, stack)
        if self._begins_line(place):
            file, function = place
            fields = {"seconds": round(seconds, 3), "file": file, "function": function, "stack": stack}
            self._log("event loop blocked", level="warning", **fields)

    def _begins_line(self, place: tuple[str, str]) -> bool:
        """Return True if a line about `place` is due, and note that it is written."""
        now = time.monotonic()
        if place in self._places or len(self._places) >= _MOST or now < self._quiet_until:
            return False
        self._places.add(place)
        self._quiet_until = now + _PAUSE
        return True


def _frames(innermost: FrameType | None) -> list[FrameType]:
    """Return the frames of a stack, the innermost one last."""
    found = []
    while innermost is not None:
        found.append(innermost)
        innermost = innermost.f_back
    return found[::-1]


def _inside(outer: list[CodeType], frames: list[FrameType]) -> list[FrameType]:
    """Return the `frames` after those that run the code of `outer`."""
    same = takewhile(lambda pair: pair[0] is pair[1].f_code, zip(outer, frames, strict=False))
    return frames[len(list(same)) :]


def _waits(frames: list[FrameType]) -> bool:
    """Return True if the loop waits for events. Code that blocks it may use a selector, too: `subprocess.run` does."""
    return frames[0].f_code.co_name in _WAITS and frames[-1].f_code.co_filename.endswith(_WAITING)


def _place(frames: list[FrameType]) -> tuple[str, str]:
    """Return file and function of the innermost frame of the application, of any frame if there is none."""
    codes = [frame.f_code for frame in frames]
    own = [code for code in codes if not code.co_filename.startswith(_LIBRARIES)]
    code = (own or codes)[-1]
    return code.co_filename, code.co_name


def _shown(frames: list[FrameType]) -> str:
    """Return the stack as in a traceback, without its outer lines if it is long."""
    text = "".join(traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames).format())
    return text if len(text) <= _LONGEST else "..." + text[-_LONGEST:].partition("\n")[2]
