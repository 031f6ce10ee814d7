"""The service manager's watchdog: signs of life, and an end for worker processes whose event loop is blocked.

Facts      systemd restarts a service that gives no sign of life within WATCHDOG_USEC.
Hazard     A sign from a thread does not show that the event loop is blocked, nor one from a supervisor that a worker
           process hangs. A supervisor that gives none because one worker process hangs has all of them restarted.
Answer     A process that serves alone gives it from its event loop. A supervisor gives it from its own, and asks each
           worker process that serves as often; one that has not answered for the whole period is killed, and replaced.
Cost       A question per worker process and half a period.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping

from ..timing import Timer, after_func
from .frames import ASK
from .logs import Log
from .notify import Notifier
from .worker_process import WorkerProcess


class LoopWatchdog:
    """Signs of life from the event loop that runs, from `begin` to `end`."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Give a sign of life now, and twice in each period from now on."""
        if self._notifier.watchdog:
            self._notifier.alive()
            self._timer = after_func(self._notifier.watchdog / 2, self.begin)

    def end(self) -> None:
        """Give none any more. Idempotent."""
        if self._timer is not None:
            self._timer.stop()


class SupervisorWatchdog:
    """Signs of life of a supervisor, which calls `tick` in its loop, at `until` at the latest."""

    def __init__(self, notifier: Notifier, log: Log) -> None:
        self._notifier = notifier
        self._log = log
        # absolute seconds of time.monotonic()
        self.until: float = time.monotonic() if notifier.watchdog else math.inf

    def tick(self, workers: Mapping[int, WorkerProcess]) -> None:
        """Give a sign of life if it is time, ask the worker processes, and kill those that do not answer."""
        now = time.monotonic()
        if now < self.until:
            return
        self.until = now + self._notifier.watchdog / 2
        self._notifier.alive()
        for pid, worker in workers.items():
            # one that drains has a limit of its own
            if not worker.ready or worker.leaving:
                continue
            if worker.unanswered >= 2:
                self._log("worker does not answer: killed", level="error", number=worker.number, pid=pid)
                os.kill(pid, signal.SIGKILL)
            worker.unanswered += 1
            worker.channel.send(ASK)
