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
from types import FrameType
from typing import Any

from ..net.listener import bind, sockets_for
from .errors import FAILED, StartupError
from .link import END, Link
from .logs import Log
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
    link: socket.socket
    started: float
    number: int


class Supervisor:
    """Keeps `number` worker processes until a signal stops it. For the main thread of a process without other threads.

    `drain`: seconds that the worker processes may take to drain, `inf` without a limit.
    """

    def __init__(self, number: int, drain: float, log: Log) -> None:
        self._number = number
        self._drain = drain
        self._log = log
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
        while True:
            link = self._start_missing()
            if link is not None:
                return link
            if not self._workers and self._stopping:
                self._close()
                return self._code
            self._wait()
            self._reap()
            self._kill_overdue()

    def _install_signal_handlers(self) -> None:
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, _do_nothing)

    def _close(self) -> None:
        """Close every resource of the supervisor. Also called in a freshly forked worker process."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._selector.close()
        for end in (self._woken, self._waker, *(worker.link for worker in self._workers.values())):
            end.close()
        self._workers.clear()

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
                self._close()
                return Link(theirs, number, first=not self._was_ready)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        ours.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ, pid)
        self._workers[pid] = _WorkerProcess(ours, time.monotonic(), number)
        return None

    def _wait(self) -> None:
        """Sleep until a signal, a message of a worker process, the next kill or the end of a delay."""
        missing = not self._stopping and len(self._workers) < self._number and self._was_ready
        until = min(self._kill_at, self._not_before if missing else math.inf)
        timeout = None if until == math.inf else max(until - time.monotonic(), 0.0)
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                for number in self._woken.recv(4096):
                    if number in _STOPS:
                        self._stop(signal.Signals(number).name)
            else:
                self._receive(self._workers[key.data])

    def _receive(self, worker: _WorkerProcess) -> None:
        if _reports_ready(worker.link):
            self._was_ready = True
        else:
            # it has ended or is about to
            self._selector.unregister(worker.link)

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
            try:
                worker.link.send(END)
            except OSError:
                # it has ended, or it hangs and its buffer is full of earlier ones
                continue

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
        if worker.link in self._selector.get_map():
            self._selector.unregister(worker.link)
        # its report may not have been received yet
        self._was_ready = self._was_ready or _reports_ready(worker.link)
        worker.link.close()
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
            self._close()
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


def _reports_ready(link: socket.socket) -> bool:
    """Receive what a worker process has sent; False if there is nothing, or it has ended."""
    try:
        return bool(link.recv(16))
    except OSError:
        return False


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
