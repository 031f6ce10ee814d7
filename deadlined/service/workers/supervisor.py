"""Worker processes: several processes behind one port, and the supervisor that starts, replaces and ends them.

Facts      A process of Python keeps one core busy, and imports an application once.
Hazard     A worker process that dies leaves its share to the others for ever. One that cannot start is started again
           and again. One whose supervisor was killed keeps the port. One that hangs keeps a drain from ending. A
           service manager signals every process of a service, so that a worker process is told twice to drain.
Answer     The first worker process must be ready before others are started; if it ends before that, the supervisor
           ends with its exit code. Later a dead one, or one that drains, is replaced: at once, or, if it did not live
           long, after a delay that doubles with each round of deaths. A worker process drains when its link to the
           supervisor breaks; one whose event loop does not run learns it by a signal, on Linux. A signal to a worker
           process begins its drain, however often it comes; only the supervisor ends one at once, over the link. What
           is left after its drain is killed. See `rolling.py`, `watchdog.py`, `process/parent_death.py`.
Cost       A process that sleeps, but for a question to each worker process per second.
"""

from __future__ import annotations

import errno
import math
import os
import selectors
import signal
import socket
import time
from functools import partial

import msgspec

from ...terminal import START
from ..config import MOST_WORKERS
from ..config.changing import encode
from ..config.rereading import Configuration, Reloaded, not_reloaded
from ..errors import CUT, FAILED, StartupError, before_serving, worse
from ..log.logs import Log
from ..process.backoff import Backoff
from ..process.last_resort import MARGIN
from ..process.notify import Notifier
from ..process.parent_death import fork
from ..process.signals import ALWAYS_STOP, SignalPipe, StopSignals
from ..process.waiting import at_once
from . import rolling
from .channel import Channel
from .frames import CONFIGURE, LEAVING, READY, STOP, TELL
from .last_block import LastBlock
from .link import Link
from .overseer import Controls, Overseer
from .rolling import Change, Rolling, Stage
from .slots import Slots
from .watchdog import SupervisorWatchdog
from .worker_process import WorkerProcess

_SIGNALS = (*ALWAYS_STOP, signal.SIGCHLD, signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU)


class Supervisor:
    """Keeps the worker processes of a configuration until a signal stops it, and tells `overseer` what happens to them.
    For the main thread of a process without other threads. Closes `slots`."""

    def __init__(
        self, configuration: Configuration, slots: Slots, log: Log, overseer: Overseer | None, notifier: Notifier
    ) -> None:
        self._configuration = configuration
        self._rolling = Rolling(configuration.config.workers)
        self._slots = slots
        self._log = log
        self._overseer = overseer or Overseer()
        self._notifier = notifier
        self._watchdog = SupervisorWatchdog(notifier, configuration.config.worker_timeout, self._overseer, log)
        self._workers: dict[int, WorkerProcess] = {}
        self._selector = selectors.DefaultSelector()
        self._signals = SignalPipe(_SIGNALS, self._selector)
        self._stage = Stage.STARTING
        # SIGHUP has come in that stage
        self._reload_later = False
        self._backoff = Backoff()
        self._stops = StopSignals()
        # another process has taken a place while the application started
        self._cannot_listen: StartupError | None = None
        self._code = 0

    def run(self) -> Link | int:
        """Start worker processes, replace those that end, and stop upon a signal.

        Returns the exit code in the supervisor, once all have ended, and its `Link` in each worker process.
        StartupError if the first one cannot be forked, or a place was taken before it served.
        """
        self._signals.handle()
        self._overseer.begin(
            Controls(
                self._selector, self._stop, self.reload, self._release, lambda: self._is_stopping, self._rolling.wanted
            )
        )
        role: Link | int = FAILED
        try:
            role = self._supervise()
        finally:
            # a worker process has closed everything already
            if isinstance(role, int):
                self._overseer.end()
                self._slots.close()
                self._release()
        return role

    def _supervise(self) -> Link | int:
        while True:
            if (link := self._start_wanted()) is not None:
                return link
            if not self._workers and self._is_stopping:
                self._signals.ignore_stops()
                if self._cannot_listen is not None:
                    raise self._cannot_listen
                return self._code
            self._wait()
            self._overseer.tick()
            if self._watchdog.tick(self._workers.values(), time.monotonic()):
                self._assign()
            self._reap()
            self._dismiss()
            self._kill_overdue()

    @property
    def _is_stopping(self) -> bool:
        return self._stage is Stage.STOPPING

    def _release(self) -> None:
        """Close every resource of the supervisor. Also called in a freshly forked process."""
        self._signals.release()
        for worker in self._workers.values():
            worker.channel.release()
        self._workers.clear()
        self._slots.release()
        self._selector.close()

    # starting

    def _start_wanted(self) -> Link | None:
        """Start the worker processes that are missing, and the next replacement, unless a delay is pending. Returns a
        Link in a new one."""
        while (number := self._wanted()) is not None and time.monotonic() >= self._backoff.until:
            try:
                link = self._start(number)
            except OSError as error:
                self._fork_failed(error)
                return None
            if link is not None:
                return link
        return None

    def _wanted(self) -> int | None:
        """Return the number of the worker process to start next, None if there is none."""
        if self._is_stopping:
            return None
        members, wanted = self._workers.values(), self._rolling.wanted
        number = rolling.missing(members, 1 if self._stage is Stage.STARTING else wanted)
        return rolling.outdated(members, wanted, self._rolling.generation) if number is None else number

    def _start(self, number: int) -> Link | None:
        block = LastBlock()
        ours, theirs = socket.socketpair()
        # a signal to the new process must not run the supervisor's handlers there, nor reach its wakeup descriptor
        before = self._signals.block()
        try:
            pid = fork()
            if not pid:
                ours.close()
                self._overseer.abandon()
                self._release()
                START.hold(_SIGNALS)
                return Link(theirs, number, first=self._stage is Stage.STARTING, urls=self._slots.urls, block=block)
        except BaseException:
            for end in (ours, theirs):
                end.close()
            raise
        finally:
            # in the new process they wait for its own handlers
            signal.pthread_sigmask(signal.SIG_SETMASK, before | START.held)
        theirs.close()
        channel = Channel(ours, self._selector, partial(self._deliver, pid))
        self._workers[pid] = WorkerProcess(pid, channel, time.monotonic(), number, self._rolling.generation, block)
        self._overseer.joined(pid, number, channel.send)
        return None

    def _fork_failed(self, error: OSError) -> None:
        # what the kernel says of a limit does not name it
        limit = " (a limit of processes: ulimit -u, or the container's)" if error.errno == errno.EAGAIN else ""
        why = f"{error.strerror}{limit}"
        if self._stage is Stage.STARTING:
            raise StartupError(f"cannot start a worker: {why}", FAILED) from None
        self._backoff.failed(time.monotonic())
        self._log("cannot start a worker", level="error", why=why, again_in=self._backoff.delay)

    # what happens

    def _wait(self) -> None:
        """Sleep until something comes or is due, and take the signals and messages that have come."""
        until = min(
            math.inf if self._wanted() is None else self._backoff.until,
            self._overseer.until(),
            self._watchdog.until,
            *(worker.kill_at for worker in self._workers.values()),
        )
        for key, mask in self._selector.select(at_once(until - time.monotonic())):
            if key.data is None:
                self._read_signals()
            else:
                key.data(mask)

    def _read_signals(self) -> None:
        now = time.monotonic()
        for number in self._signals.read():
            if number in ALWAYS_STOP:
                self._stop_or_cut(number.name, now)
            elif number == signal.SIGHUP:
                self._hung_up()
            elif number == signal.SIGTTIN:
                self._want(min(self._rolling.wanted + 1, MOST_WORKERS), "SIGTTIN")
            elif number == signal.SIGTTOU:
                self._want(max(self._rolling.wanted - 1, 1), "SIGTTOU")

    def _deliver(self, pid: int, kind: bytes, payload: bytes) -> None:
        """Take a frame of a worker process."""
        worker = self._workers[pid]
        if kind == READY:
            self._serves(worker)
        elif kind == LEAVING and not worker.leaving:
            self._leaves(worker)
            self._backoff.ended(worker.started, time.monotonic())
        elif kind == TELL:
            worker.answered()
            self._overseer.told(pid, payload)

    def _want(self, number: int, name: str) -> None:
        """Keep `number` worker processes from now on."""
        before = self._rolling.wanted
        if self._is_stopping or number == before:
            return
        try:
            self._slots.grow(number)
        except StartupError as error:
            # it shares the slot of another one
            self._log("a worker process has no socket of its own", level="warning", why=str(error))
        self._log("number of workers", signal=name, workers=number, before=before)
        self._rolling.wanted = number
        self._overseer.want(number)

    # who serves

    def _serves(self, worker: WorkerProcess) -> None:
        """Note that a worker process serves, and listen if it is the first one."""
        worker.ready = True
        if self._stage is Stage.STARTING:
            try:
                self._slots.open()
            except StartupError as error:
                self._cannot_listen = error
                self._end_all()
                return
            self._stage = Stage.SERVING
        self._rolling.note_ready()
        self._overseer.is_ready(worker.pid)
        self._assign()
        if self._reload_later:
            self._reload_later = False
            self.reload("SIGHUP")

    def _hung_up(self) -> None:
        if START.has_lost_terminal():
            self._stop("SIGHUP")
        elif self._stage is Stage.STARTING:
            self._reload_later = True
        else:
            self.reload("SIGHUP")

    def reload(self, by: str) -> Reloaded:
        """Read the configuration again, tell it to all worker processes, and begin to replace them, one by one. One
        that does not serve yet may have imported the old application, or hang: it is replaced as well."""
        if self._stage is not Stage.SERVING:
            return not_reloaded("draining" if self._is_stopping else "starting", by, self._log)
        self._notifier.reloading()
        found = self._configuration.reread(by, self._log)
        if found.status != "reloaded":
            self._notifier.ready("reload refused, the configuration is as before")
            return found
        encoded = encode(self._configuration.config)
        for worker in self._workers.values():
            worker.channel.send(CONFIGURE, encoded)
        self._overseer.configured(self._configuration.config)
        self._rolling.begin()
        return msgspec.structs.replace(found, workers=self._rolling.wanted)

    def _dismiss(self) -> None:
        """Let worker processes leave whose replacements serve, that are too many, or that did not serve
        when a reload came; and report the change that is complete."""
        if self._is_stopping:
            return
        members, wanted = self._workers.values(), self._rolling.wanted
        for worker in rolling.superfluous(members, wanted, self._rolling.generation):
            worker.dismiss()
            self._leaves(worker)
        change = self._rolling.completed(members)
        if change is not Change.NONE:
            self._notifier.ready(f"{wanted} worker processes serve")
        if change is Change.REPLACEMENT:
            self._log("workers replaced", workers=wanted)

    def _leaves(self, worker: WorkerProcess) -> None:
        """Note that a worker process drains. Its own watchdog ends it one MARGIN after the drain's deadline."""
        worker.leaving = True
        worker.kill_at = min(worker.kill_at, time.monotonic() + self._configuration.config.timeouts.drain + 2 * MARGIN)
        # it closes its listeners by itself
        worker.slots.clear()
        self._overseer.leaves(worker.pid)
        self._assign()

    def _assign(self) -> None:
        """Divide all slots among the worker processes that serve, stay and answer: the latest one of each number."""
        if not self._is_stopping:
            found = (one for one in self._workers.values() if one.ready and not one.leaving and not one.silent)
            self._slots.hand_out({one.number: one for one in found}.values())

    # the end

    def _stop_or_cut(self, name: str, now: float) -> None:
        """Begin the drain, unless it has begun, or, at a later signal, cut it short."""
        if self._stops.note(now):
            for worker in self._workers.values():
                worker.cut()
        self._stop(name)

    def _stop(self, name: str) -> None:
        """Begin the drain, unless it has begun."""
        if self._is_stopping:
            return
        self._notifier.stopping(f"{name}: worker processes drain")
        self._log("stopping the workers", signal=name, workers=len(self._workers))
        self._end_all()

    def _end_all(self) -> None:
        """Have all worker processes drain, and start no others."""
        self._stage = Stage.STOPPING
        for worker in self._workers.values():
            # a process keeps its pid until it is reaped
            os.kill(worker.pid, signal.SIGTERM)
            worker.channel.send(STOP)
            self._leaves(worker)
        # they accept what waits; later connections are refused
        self._slots.close()

    def _reap(self) -> None:
        # a Ctrl-C ends the worker processes, too: no failure of theirs, and none is replaced
        self._read_signals()
        for pid in list(self._workers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._ended(pid, os.waitstatus_to_exitcode(status))

    def _ended(self, pid: int, code: int) -> None:
        worker = self._workers[pid]
        # its last frames may not have been received yet
        worker.channel.close()
        del self._workers[pid]
        self._overseer.left(pid)
        if self._is_stopping:
            self._code = worse(self._code, code if worker.ready else before_serving(code, stopping=True))
        elif self._stage is Stage.STARTING:
            self._stage = Stage.STOPPING
            self._slots.close()
            self._code = before_serving(code, stopping=False)
            if code < 0 < self._code:
                # one that was not killed has written the reason itself
                self._log("the first worker was killed before it served", level="error", **worker.facts(code))
        else:
            self._replaced(worker, code)
            self._assign()

    def _replaced(self, worker: WorkerProcess, code: int) -> None:
        """Log the end of a worker process, and delay the next start if it did not live long, or give up to replace."""
        facts = worker.facts(code)
        newcomer = rolling.replaces(worker, self._workers.values())
        if newcomer and worker.generation == self._rolling.generation:
            self._give_up(facts)
            return
        if not worker.leaving and not newcomer:
            facts["replaced_in"] = self._backoff.ended(worker.started, time.monotonic())
        self._log("worker ended", level="warning" if code not in (0, CUT) else "info", **facts)

    def _give_up(self, facts: dict[str, object]) -> None:
        """Keep outdated worker processes until the next reload, because a new one has ended before it served."""
        self._log("workers not replaced: the new one did not start, the others stay", level="error", **facts)
        self._rolling.give_up(self._workers.values())
        self._notifier.ready("new worker processes do not start, the others serve")

    def _kill_overdue(self) -> None:
        overdue = [worker for worker in self._workers.values() if time.monotonic() >= worker.kill_at]
        if overdue:
            self._log("workers did not end in time: killed", level="error", pids=[worker.pid for worker in overdue])
        for worker in overdue:
            worker.kill_at = math.inf
            worker.killed = True
            os.kill(worker.pid, signal.SIGKILL)
