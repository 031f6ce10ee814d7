"""Worker processes: several processes behind one port, and the supervisor that starts, replaces and ends them.

Facts      A process of Python keeps one core busy. With SO_REUSEPORT the kernel spreads new connections over all
           processes that listen, each with an event queue and a timer queue of its own.
Hazard     A worker process that dies leaves its share to the others for ever. One that cannot start is started again
           and again. One whose supervisor was killed keeps the port. One that hangs keeps a drain from ending. A
           service manager signals every process of a service, so that a worker process is told twice to drain.
Answer     The first worker process must be ready before others are started; if it ends before that, the supervisor
           ends with its exit code. Later a dead one is replaced: at once, or, if it did not live long, after a delay
           that doubles with each round of deaths. A worker process drains when its link to the supervisor breaks. A
           signal to a worker process begins its drain, however often it comes; only the supervisor ends one at once,
           over the link. Processes that are left after the drain are killed.
Cost       A process that sleeps. Connections are spread by a hash, not by load.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from ..net.listener import bind, sockets_for
from .channel import Channel
from .errors import FAILED, StartupError
from .frames import END, READY, TELL
from .link import Link
from .logs import Log
from .overseer import Controls, Overseer
from .stopping import MARGIN

# seconds; a worker process that lived for as long is replaced at once
LONG_LIFE = 10.0
# seconds; the delays before others are replaced, each twice the one before
FIRST_DELAY = 0.1
LONGEST_DELAY = 10.0

_STOPS = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_STOPS, signal.SIGCHLD)


@dataclass
class _WorkerProcess:
    channel: Channel
    started: float
    number: int


class Supervisor:
    """Keeps `number` worker processes until a signal stops it. For the main thread of a process without other threads.

    `drain`: seconds that the worker processes may take to drain, `inf` without a limit. `overseer` is told what happens
    to them.
    """

    def __init__(self, number: int, drain: float, log: Log, overseer: Overseer | None = None) -> None:
        self._number = number
        self._drain = drain
        self._log = log
        self._overseer = Overseer() if overseer is None else overseer
        self._workers: dict[int, _WorkerProcess] = {}
        self._selector = selectors.DefaultSelector()
        self._before: dict[signal.Signals, Any] = {}
        self._woken, self._waker = socket.socketpair()
        # a worker process was ready once: the application can start, and one that ends now is replaced
        self._was_ready = False
        self._delay = 0.0
        self._not_before = -math.inf
        self._stopping = False
        self._kill_at = math.inf
        self._code = 0

    def run(self) -> Link | int:
        """Start worker processes, replace those that end, and stop upon a signal.

        Returns the exit code in the supervisor, once all have ended, and its `Link` in each worker process.
        StartupError if the first one cannot be forked.
        """
        self._install_signal_handlers()
        self._overseer.begin(
            Controls(self._selector, self._stop_once, self._close, lambda: self._stopping, self._number)
        )
        role: Link | int = FAILED
        try:
            role = self._supervise()
        finally:
            # a worker process has closed everything already
            if isinstance(role, int):
                self._overseer.end()
                self._close()
        return role

    def _supervise(self) -> Link | int:
        while True:
            link = self._start_missing()
            if link is not None:
                return link
            if not self._workers and self._stopping:
                return self._code
            self._wait()
            self._overseer.tick()
            self._reap()
            self._kill_overdue()

    def _install_signal_handlers(self) -> None:
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._read_signals)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, _do_nothing)

    def _close(self) -> None:
        """Close every resource of the supervisor. Also called in a freshly forked worker process."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for worker in self._workers.values():
            worker.channel.release()
        self._workers.clear()
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _start_missing(self) -> Link | None:
        """Start the worker processes that are missing, unless a delay is pending. Returns a Link in a new one."""
        wanted = self._number if self._was_ready else 1
        while not self._stopping and len(self._workers) < wanted and time.monotonic() >= self._not_before:
            try:
                link = self._start()
            except OSError as error:
                self._fork_failed(error)
                return None
            if link is not None:
                return link
        return None

    def _start(self) -> Link | None:
        # buffered output would be written by both processes
        sys.stdout.flush()
        sys.stderr.flush()
        number = min(set(range(1, self._number + 1)) - {worker.number for worker in self._workers.values()})
        ours, theirs = socket.socketpair()
        # a signal to the new process must not run the supervisor's handlers there, nor reach its wakeup descriptor
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
            if not pid:
                ours.close()
                self._overseer.abandon()
                self._close()
                return Link(theirs, number, first=not self._was_ready)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        channel = Channel(ours, self._selector, partial(self._deliver, pid))
        self._workers[pid] = _WorkerProcess(channel, time.monotonic(), number)
        self._overseer.joined(pid, number, channel.send)
        return None

    def _wait(self) -> None:
        """Sleep until a signal, a message of a worker process, the next kill or the end of a delay."""
        missing = not self._stopping and len(self._workers) < self._number and self._was_ready
        until = min(self._kill_at, self._not_before if missing else math.inf, self._overseer.until())
        timeout = None if until == math.inf else max(until - time.monotonic(), 0.0)
        for key, mask in self._selector.select(timeout):
            key.data(mask)

    def _read_signals(self, mask: int) -> None:
        for number in self._woken.recv(4096):
            if number in _STOPS:
                self._stop(signal.Signals(number).name)

    def _deliver(self, pid: int, kind: bytes, payload: bytes) -> None:
        """Take a frame of a worker process."""
        if kind == READY:
            self._was_ready = True
            self._overseer.is_ready(pid)
        elif kind == TELL:
            self._overseer.told(pid, payload)

    def _stop_once(self, name: str) -> None:
        """Begin the drain, unless it has begun."""
        if not self._stopping:
            self._stop(name)

    def _stop(self, name: str) -> None:
        """Begin the drain, or, when called again, cut it short."""
        if not self._stopping:
            self._stopping = True
            self._log("stopping the workers", signal=name, workers=len(self._workers))
            # a worker process's own watchdog ends it one MARGIN after the drain
            self._kill_at = time.monotonic() + self._drain + 2 * MARGIN
            self._signal(signal.SIGTERM)
            return
        self._kill_at = min(self._kill_at, time.monotonic() + 2 * MARGIN)
        for worker in self._workers.values():
            worker.channel.send(END)

    def _signal(self, number: signal.Signals) -> None:
        # a process keeps its pid until it is reaped
        for pid in self._workers:
            os.kill(pid, number)

    def _reap(self) -> None:
        for pid in list(self._workers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._ended(pid, os.waitstatus_to_exitcode(status))

    def _ended(self, pid: int, code: int) -> None:
        worker = self._workers.pop(pid)
        # its last frames may not have been received yet
        worker.channel.close()
        self._overseer.left(pid, replaced=self._was_ready and not self._stopping)
        if self._stopping:
            self._code = self._code or (FAILED if code else 0)
        elif self._was_ready:
            self._replace(pid, worker, code)
        else:
            # it has written the reason itself
            self._stopping = True
            self._code = code if code > 0 else FAILED

    def _replace(self, pid: int, worker: _WorkerProcess, code: int) -> None:
        lived = time.monotonic() - worker.started
        if lived >= LONG_LIFE:
            self._delay = 0.0
            self._not_before = -math.inf
        else:
            self._back_off()
        how: dict[str, object] = {"code": code} if code >= 0 else {"signal": _signal_name(-code)}
        self._log(
            "worker ended",
            level="warning" if code else "info",
            number=worker.number,
            pid=pid,
            **how,
            lived=round(lived, 3),
            replaced_in=self._delay,
        )

    def _fork_failed(self, error: OSError) -> None:
        if not self._was_ready:
            raise StartupError(f"cannot start a worker: {error.strerror}", FAILED) from None
        self._back_off()
        self._log("cannot start a worker", level="error", why=error.strerror, again_in=self._delay)

    def _back_off(self) -> None:
        """Double the delay, unless one is pending: worker processes that end together count once."""
        now = time.monotonic()
        if now >= self._not_before:
            self._delay = min(max(2 * self._delay, FIRST_DELAY), LONGEST_DELAY)
            self._not_before = now + self._delay

    def _kill_overdue(self) -> None:
        if self._workers and time.monotonic() >= self._kill_at:
            self._log("workers did not end in time: killed", level="error", pids=list(self._workers))
            self._kill_at = math.inf
            self._signal(signal.SIGKILL)


def free_port(host: str, port: int) -> int:
    """Return `port`, or for 0 one that the kernel chooses. OSError if a process listens on it on an address of `host`.

    SO_REUSEPORT would let an unrelated process share the port, so bind once without it to detect a conflict. The name
    is looked up in this thread, because a fork would lose any other.
    """
    addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for probe, address in sockets_for(addresses):
        with probe:
            bind(probe, (address[0], port, *address[2:]))
            port = probe.getsockname()[1]
    return port


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Leave the signal to the byte that Python writes to the wakeup descriptor."""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
