"""Watchdogs: signs of life for the service manager, and an end for worker processes whose event loop is blocked.

Facts      systemd restarts a service that gives no sign of life within WATCHDOG_USEC. A worker process that hangs keeps
           its sockets, and the kernel goes on giving it its share of the connections.
Hazard     A sign from a thread does not show that the event loop is blocked, nor one from a supervisor that a worker
           process hangs. A supervisor that gives none because one worker process hangs has all of them restarted.
Answer     A process that serves alone gives it from its event loop. A supervisor gives it from its own, and asks each
           worker process that serves, with or without a service manager. While one does not answer, others accept what
           comes to its sockets; one that has not answered for --worker-timeout, or WATCHDOG_USEC if that is shorter, is
           killed, and replaced. `silence.py` decides.
Cost       A question per worker process and second, which wakes one that is idle, and its thread of
           `process/stalls.py`.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterable

from ...timing import Timer, after_func
from ..log.logs import Log
from ..process.notify import AGAIN, Notifier
from .frames import ASK
from .overseer import Overseer
from .silence import Awake, Verdict, period_of
from .worker_process import WorkerProcess


class LoopWatchdog:
    """Signs of life from the event loop that runs, from `begin` to `end`; and, until `end`, the states that could not
    be sent at once."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._timer: Timer | None = None
        self._again: Timer | None = None
        notifier.on_unsent = self._resend_later

    def begin(self) -> None:
        """Give a sign of life now, and twice in each period from now on."""
        if self._notifier.watchdog:
            self._notifier.alive()
            self._timer = after_func(self._notifier.watchdog / 2, self.begin)

    def end(self) -> None:
        """Give none any more. Idempotent."""
        for timer in (self._timer, self._again):
            if timer is not None:
                timer.stop()

    def _resend_later(self) -> None:
        if self._again is not None:
            self._again.stop()
        self._again = after_func(AGAIN, self._resend)

    def _resend(self) -> None:
        self._notifier.resend()
        if self._notifier.unsent:
            self._resend_later()


class SupervisorWatchdog:
    """Signs of life of a supervisor, the states that it could not send at once, and its questions to worker processes.
    It calls `tick` in its loop, at `until` at the latest. `limit`: seconds after which a process that does not answer
    is killed; `inf` asks none, unless the service manager wants signs of life. `overseer` is told which processes do
    not answer."""

    def __init__(self, notifier: Notifier, limit: float, overseer: Overseer, log: Log) -> None:
        self._notifier = notifier
        self._limit = min(limit, notifier.watchdog or math.inf)
        self._period = period_of(self._limit)
        self._overseer = overseer
        self._log = log
        self._awake = Awake(self._period)
        self._sign_at: float = -math.inf if notifier.watchdog else math.inf
        self._ask_at: float = -math.inf if self._limit < math.inf else math.inf
        # used while the notifier has an unsent state
        self._resend_at: float = -math.inf

    @property
    def until(self) -> float:
        """When `tick` must be called; `inf` for never."""
        return min(self._sign_at, self._ask_at, self._resend_at if self._notifier.unsent else math.inf)

    def tick(self, workers: Iterable[WorkerProcess], now: float) -> bool:
        """Tell the service manager what it is to know, ask the worker processes, and kill those that hang, if it is
        time. `now`: absolute seconds of any clock. Return True if another process is silent now, or one no longer."""
        if self._notifier.unsent and now >= self._resend_at:
            self._resend_at = now + AGAIN
            self._notifier.resend()
        if now >= self._sign_at:
            self._sign_at = now + self._notifier.watchdog / 2
            self._notifier.alive()
        if now < self._ask_at:
            return False
        self._ask_at = now + self._period
        self._awake.advance(now)
        # a startup has no limit, and a drain has its own
        asked = [one for one in workers if one.ready and not one.leaving and not one.killed]
        changed = [self._check(worker) for worker in asked]
        return any(changed)

    def _check(self, worker: WorkerProcess) -> bool:
        """Decide about a process, and ask it. Return True if it has become silent, or is so no longer."""
        verdict = worker.silence.judge(self._awake.seconds, self._limit)
        if verdict is Verdict.HANGS:
            self._kill(worker)
        worker.silence.asked(self._awake.seconds)
        worker.channel.send(ASK)
        silent = verdict is not Verdict.ANSWERS
        if silent == worker.silent:
            return False
        worker.silent = silent
        self._overseer.is_silent(worker.pid, silent)
        return True

    def _kill(self, worker: WorkerProcess) -> None:
        self._log(
            "worker does not answer: killed",
            level="error",
            number=worker.number,
            pid=worker.pid,
            silent=round(worker.silence.seconds(self._awake.seconds), 3),
            **worker.block.since(worker.answered_at),
        )
        worker.killed = True
        os.kill(worker.pid, signal.SIGKILL)
