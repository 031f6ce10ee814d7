"""Reports of code that blocks the event loop, with its stack.

Facts      While code of one task runs, no other task does: a handler that blocks for a second delays every connection
           and every deadline by a second. A thread can read the stack of another one.
Hazard     asyncio's debug mode measures each callback, which slows all of them. It reports a callback that has ended,
           not one that hangs, and names the task instead of the place; trio has no such mode. A thread that checks
           every second wakes an idle machine. An answer may come before what the latest poll has woken runs, and block.
Answer     A thread asks the loop to call a function. If the loop does not, it is blocked: the stack of its thread goes
           to the log, once per function of the application. If the loop answers twice, and the poller has not polled
           since the first question, the loop is idle: the thread then sleeps until the poller polls again, or until
           events wait in its event queue. So code that blocks an idle loop is noticed once bytes of a client wait for
           it. The same holds for a handler that waits for something else than its client, a database, and then blocks.
Cost       A comparison per poll. While clients are active the thread asks _CHECKS times per threshold; while none is,
           only when a supervisor's question wakes the poller. A change from the one to the other costs a byte through
           a pipe.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ...runtime import Host
from ..log.logs import Log
from .block_reports import BlockReports
from .pulse import Pulse, Step
from .waiting import at_once

# checks of the loop per threshold: a block is noticed at most two checks after the threshold
_CHECKS = 8


class StallWatch:
    """`with StallWatch(host, threshold, log):` in a task of the event loop of `host`: a thread reports to `log` what
    blocks the loop for `threshold` seconds; it may miss a block of less than 1.25 times that. `inf`: no thread.

    `log` and `note` are called in the thread, as `BlockReports` says.
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
        self._pulse = Pulse(threshold)
        self._reports = BlockReports(log, note)
        # the byte that wakes the thread when it sleeps
        self._woken, self._waker = -1, -1
        self._thread = threading.Thread(target=self._run, name="deadlined stalls", daemon=True)
        self._stopping = False
        self._answered = False
        self._roused_at = -math.inf

    @property
    def count(self) -> int:
        """How often the loop was found blocked; any thread may ask."""
        return self._reports.count

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
                # C code that blocks the loop and holds the interpreter's lock stops this thread, too. It has returned
                # just now
                self._reports.report(now - due)
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
            self._reports.report(self._threshold)
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
