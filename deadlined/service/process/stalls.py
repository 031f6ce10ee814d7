"""Reports of code that blocks the event loop, with its stack.

Facts      While code of one task runs, no other task does: a handler that blocks for a second delays every connection
           and every deadline by a second. A thread can read the stack of another one.
Hazard     asyncio's debug mode measures each callback, which slows all of them. It reports a callback that has ended,
           not one that hangs, and names the task instead of the place; trio has no such mode. A thread that checks
           every second wakes an idle machine. An answer may come before what the latest poll has woken runs, and block.
Answer     A thread asks the loop to call a function. If the loop does not, it is blocked: the stack of its thread goes
           to the log, once per function of the application. If it does so twice, and the poller has not polled since
           it was asked first, the loop is idle: the thread then sleeps until the poller polls again, or until events
           wait in its event queue. So code that blocks an idle loop is noticed once bytes of a client wait for it. The
           same holds for a handler that waits for something else than its client, a database, and then blocks.
Cost       A comparison per poll. While clients are active the thread asks _CHECKS times per threshold; while they are
           not, only for a supervisor's question. A change from the one to the other costs a byte through a pipe.
"""

from __future__ import annotations

import math
import os
import select
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from itertools import takewhile
from types import CodeType, FrameType

from ...runtime import Host
from ..log.logs import Log
from .waiting import at_once

# checks of the loop per threshold: a block is noticed at most two checks after the threshold
_CHECKS = 8

# seconds between two reports, and the most of them: a log is for people
_PAUSE = 10.0
_MOST = 100

# characters of a stack, the innermost ones: with the rest of its line below PIPE_BUF, so that no other line comes
# between (`log/output.py`)
_LONGEST = 3000

# where a loop waits for events in Python code
_WAITING = ("/selectors.py", "/_io_epoll.py", "/_io_kqueue.py")

_LIBRARIES = tuple(sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class Step(Enum):
    """What the thread does next."""

    ASK = "ask the loop to answer, and check again later"
    WAIT = "check again later"
    REPORT = "the loop is blocked: report it, and check again later"
    SLEEP = "the loop is idle: sleep until it polls"


class Pulse:
    """The rule of the thread: decides whether the loop is busy, idle or blocked. A loop is blocked if it does not
    answer for `threshold` seconds."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._polls = -1
        # it has answered, and nothing was polled before that since it was asked
        self._quiet = False
        # when the loop was asked to answer, absolute; inf if it was not
        self._asked_at = math.inf
        self._reported = False

    def check(self, now: float, polls: int, answered: bool) -> Step:
        """Decide at `now`, in seconds, after `polls` polls in all. `answered`: the loop has answered since the last
        ASK."""
        if answered or self._asked_at == math.inf:
            # after a sleep equal polls do not mean idle: the loop may be blocked while events wait
            quiet = polls == self._polls and self._asked_at < math.inf
            idle = quiet and self._quiet
            self._quiet = quiet and not idle
            self._polls = polls
            self._reported = False
            self._asked_at = math.inf if idle else now
            return Step.SLEEP if idle else Step.ASK
        if now - self._asked_at >= self._threshold and not self._reported:
            self._reported = True
            return Step.REPORT
        return Step.WAIT

    def reported(self) -> None:
        """Note that a block was reported that this has not found. If the loop was asked before, it is the same one."""
        self._reported = True

    def next_check(self, now: float, interval: float) -> float:
        """Return when to check again: `interval` seconds from `now`, or when a loop that does not answer is blocked."""
        blocked_at = self._asked_at + self._threshold
        return min(now + interval, blocked_at) if blocked_at > now else now + interval


class StallWatch:
    """`with StallWatch(host, threshold, log):` in a task of the event loop of `host`: a thread reports to `log` what
    blocks the loop for `threshold` seconds; it may miss a block of less than 1.25 times that. `inf`: no thread.

    `log` is called in the thread, with `seconds`: for how long the loop has not answered yet. `note(file, function,
    stack)` is called there for each block, also for one whose place the log has already.
    """

    def __init__(
        self,
        host: Host,
        threshold: float,
        log: Log,
        note: Callable[[str, str, str], object] = lambda file, function, stack: None,
    ) -> None:
        if not threshold > 0.0:
            raise ValueError(f"the threshold must be above 0, not {threshold}")
        self._host = host
        self._poller = host.poller
        self._threshold = threshold
        self._interval = threshold / _CHECKS
        self._log = log
        self._note = note
        self._pulse = Pulse(threshold)
        self._watched = threading.get_ident()
        # the frames in which the loop runs: not shown
        self._outer = [frame.f_code for frame in _frames(sys._getframe())]
        # the byte that wakes the thread when it sleeps
        self._woken, self._waker = -1, -1
        self._thread = threading.Thread(target=self._run, name="deadlined stalls", daemon=True)
        self._stopping = False
        self._answered = False
        self._roused_at = -math.inf
        self._places: set[tuple[str, str]] = set()
        self._quiet_until = -math.inf
        # how often the loop was found blocked; may be read in other threads
        self.count: int = 0

    def __enter__(self) -> StallWatch:
        if self._threshold < math.inf:
            self._woken, self._waker = os.pipe()
            for end in (self._woken, self._waker):
                os.set_blocking(end, False)
            try:
                self._thread.start()
            except RuntimeError as error:
                # the process may have no more threads; it can serve without this one
                self._log("the event loop is not watched", level="warning", why=str(error))
        return self

    def __exit__(self, *_: object) -> None:
        if self._threshold < math.inf:
            self._stopping = True
            self._wake()
            if self._thread.ident is not None:
                self._thread.join()
            self._poller.on_next_poll = None
            for end in (self._woken, self._waker):
                # the application may have closed it
                with suppress(OSError):
                    os.close(end)

    # called in the event loop

    def _answer(self) -> None:
        self._answered = True

    def _rouse(self) -> None:
        """Wake the thread, because the poller polls."""
        self._roused_at = time.monotonic()
        self._wake()

    def _wake(self) -> None:
        # the application may have closed it; the thread then ends, too
        with suppress(OSError):
            os.write(self._waker, b"x")

    # called in the thread

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping:
            now = time.monotonic()
            if now - due >= self._threshold:
                # C code that blocks and holds the interpreter's lock stops this thread, too: it has returned just now
                self._report(now - due)
                self._pulse.reported()
            due = self._perform(self._pulse.check(now, self._poller.polls, self._answered), now)

    def _perform(self, step: Step, now: float) -> float:
        """Do `step` and wait. Return when the wait should have ended."""
        until = self._pulse.next_check(now, self._interval)
        if step is Step.SLEEP:
            return self._sleep()
        if step is Step.ASK:
            self._answered = False
            # the loop may have ended
            with suppress(RuntimeError):
                self._host.call_soon_from_anywhere(self._answer)
        elif step is Step.REPORT:
            self._report(self._threshold)
        self._poll([self._woken], until - now)
        return until

    def _sleep(self) -> float:
        """Sleep until the poller polls, or until events wait for it. Return when that was."""
        polls = self._poller.polls
        # one may have come when the thread was awake already
        self._roused_at = -math.inf
        self._poller.on_next_poll = self._rouse
        if self._poller.polls == polls and self._poller.is_open():
            self._poll([self._woken, self._poller.port.fileno()], math.inf)
        self._poller.on_next_poll = None
        roused_at = self._roused_at
        return time.monotonic() if roused_at == -math.inf else roused_at

    def _poll(self, descriptors: list[int], seconds: float) -> None:
        waiting = select.poll()
        for fd in descriptors:
            waiting.register(fd, select.POLLIN)
        for _, event in waiting.poll(at_once(seconds) * 1000.0):
            if event & select.POLLNVAL:
                # the application has closed it, and polling it again would return at once, for ever
                self._stopping = True
        with suppress(OSError):
            os.read(self._woken, 64)

    def _report(self, seconds: float) -> None:
        """Count and note a block, and log the stack of the loop's thread unless its place was reported before, or
        another one just now."""
        frames = _inside(self._outer, _frames(sys._current_frames().get(self._watched)))
        now = time.monotonic()
        if not frames or frames[-1].f_code.co_filename.endswith(_WAITING):
            # it waits for events now
            return
        self.count += 1
        place = _place(frames)
        stack = _shown(frames)
        self._note(*place, stack)
        if place in self._places or len(self._places) >= _MOST or now < self._quiet_until:
            return
        self._places.add(place)
        self._quiet_until = now + _PAUSE
        self._log(
            "event loop blocked",
            level="warning",
            seconds=round(seconds, 3),
            file=place[0],
            function=place[1],
            stack=stack,
        )


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
