"""Workers: several processes behind one port, and the one that sees to them.

Facts      A process of Python keeps one core busy. With SO_REUSEPORT the kernel spreads new connections over all
           processes that listen, each with an event queue and a timer heap of its own.
Hazard     A worker that dies leaves its share to the others for ever. One that cannot start is started again and
           again. One whose supervisor was killed goes on by itself, with the port. One that hangs keeps a drain from
           ending. A service manager signals every process of a service, so that a worker hears of a drain twice.
Answer     The first worker must be ready before there are others: if it does not get that far, its exit code is the
           supervisor's. Later a dead one is replaced, at once, or after a delay that grows if it did not live long.
           A worker drains when its line to the supervisor breaks. A signal to a worker begins its drain, however often
           it comes; to end one at once is the supervisor's word. What is left after the drain is killed.
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

# seconds that a worker must have lived to be replaced at once; and the delays otherwise, each twice the one before
LONG_LIFE = 10.0
FIRST_DELAY = 0.1
LONGEST_DELAY = 10.0

_STOPS = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_STOPS, signal.SIGCHLD)


@dataclass
class _Worker:
    line: socket.socket
    born: float


class Supervisor:
    """Keeps `number` workers until it is told to stop. To be used in the main thread of a process that has no other.

    `run` returns several times: in each worker its `Link`, and in the supervisor, once all have ended, the exit code.
    """

    def __init__(self, number: int, drain: float, log: Log) -> None:
        self._number = number
        self._drain = drain
        self._log = log
        self._workers: dict[int, _Worker] = {}
        self._selector = selectors.DefaultSelector()
        self._before: dict[signal.Signals, Any] = {}
        self._woken, self._waker = socket.socketpair()
        # a worker was ready once, so that whatever ends one now is worth another try
        self._proven = False
        self._delay = 0.0
        self._not_before = -math.inf
        self._stopping = False
        self._kill_at = math.inf
        self._code = 0

    def run(self) -> Link | int:
        """Fork, watch, replace; stop upon a signal."""
        self._hear_signals()
        while True:
            link = self._fill()
            if link is not None:
                return link
            if not self._workers and self._stopping:
                self._let_go()
                return self._code
            self._wait()
            self._reap()
            self._kill_late()

    def _hear_signals(self) -> None:
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, _heard)

    def _let_go(self) -> None:
        """Of everything that is the supervisor's; in a new worker, too."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._selector.close()
        for end in (self._woken, self._waker, *(worker.line for worker in self._workers.values())):
            end.close()
        self._workers.clear()

    def _fill(self) -> Link | None:
        """Start what is missing, if it may be started now; not None in a new worker."""
        wanted = self._number if self._proven else 1
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
        # what is not written yet would be written twice
        sys.stdout.flush()
        sys.stderr.flush()
        ours, theirs = socket.socketpair()
        # until it has let go, a worker would take a signal for the supervisor's, and tell that of it
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
            if not pid:
                ours.close()
                self._let_go()
                return Link(theirs)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        ours.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ, pid)
        self._workers[pid] = _Worker(ours, time.monotonic())
        return None

    def _wait(self) -> None:
        """Until a signal, a worker's word, or the next thing that is to be done at a certain time."""
        missing = not self._stopping and len(self._workers) < self._number and self._proven
        until = min(self._kill_at, self._not_before if missing else math.inf)
        timeout = None if until == math.inf else max(until - time.monotonic(), 0.0)
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                for number in self._woken.recv(4096):
                    if number in _STOPS:
                        self._stop(signal.Signals(number).name)
            else:
                self._listen(self._workers[key.data])

    def _listen(self, worker: _Worker) -> None:
        try:
            word = worker.line.recv(16)
        except ConnectionResetError:
            word = b""
        if word:
            self._proven = True
        else:
            # it is about to end, or has ended
            self._selector.unregister(worker.line)

    def _stop(self, name: str) -> None:
        """The first time: drain. Again: end."""
        if not self._stopping:
            self._stopping = True
            self._log("stopping the workers", signal=name, workers=len(self._workers))
            # a worker's own watchdog is earlier
            self._kill_at = time.monotonic() + self._drain + 2 * MARGIN
            self._signal(signal.SIGTERM)
            return
        self._kill_at = min(self._kill_at, time.monotonic() + 2 * MARGIN)
        for worker in self._workers.values():
            try:
                worker.line.send(END)
            except OSError:
                # it has ended, or has not taken the same word before
                continue

    def _signal(self, number: signal.Signals) -> None:
        # none is gone before it has been buried
        for pid in self._workers:
            os.kill(pid, number)

    def _reap(self) -> None:
        for pid in list(self._workers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._ended(pid, os.waitstatus_to_exitcode(status))

    def _ended(self, pid: int, code: int) -> None:
        worker = self._workers.pop(pid)
        if worker.line in self._selector.get_map():
            self._selector.unregister(worker.line)
        # what it has said last may not have been heard yet
        self._proven = self._proven or _has_said_something(worker.line)
        worker.line.close()
        if self._stopping:
            self._code = self._code or (FAILED if code else 0)
        elif self._proven:
            self._replace(pid, code, time.monotonic() - worker.born)
        else:
            # it has said why itself
            self._stopping = True
            self._code = code if code > 0 else FAILED

    def _replace(self, pid: int, code: int, lived: float) -> None:
        if lived >= LONG_LIFE:
            self._delay = 0.0
            self._not_before = -math.inf
        else:
            self._put_off()
        how: dict[str, object] = {"code": code} if code >= 0 else {"signal": _name(-code)}
        self._log("worker ended", pid=pid, **how, lived=round(lived, 3), replaced_in=self._delay)

    def _fork_failed(self, error: OSError) -> None:
        if not self._proven:
            self._let_go()
            raise StartupError(f"cannot start a worker: {error.strerror}", FAILED) from None
        self._put_off()
        self._log("cannot start a worker", why=error.strerror, again_in=self._delay)

    def _put_off(self) -> None:
        self._delay = min(max(2 * self._delay, FIRST_DELAY), LONGEST_DELAY)
        self._not_before = time.monotonic() + self._delay

    def _kill_late(self) -> None:
        if self._workers and time.monotonic() >= self._kill_at:
            self._log("workers did not end in time: killed", pids=list(self._workers))
            self._kill_at = math.inf
            self._signal(signal.SIGKILL)


def free_port(host: str, port: int) -> int:
    """`port`, or one that the kernel chooses for 0, if nobody listens there on any address of `host`. Else OSError.

    What listens with SO_REUSEPORT would share it with strangers, too. Without a thread, which a fork would leave
    behind, so that a name is looked up while everything waits.
    """
    addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for alone, address in sockets_for(addresses):
        with alone:
            bind(alone, (address[0], port, *address[2:]))
            port = alone.getsockname()[1]
    return port


def _heard(number: int, frame: FrameType | None) -> None:
    """The byte that Python writes to the wakeup descriptor says it all."""


def _has_said_something(line: socket.socket) -> bool:
    try:
        return bool(line.recv(16))
    except OSError:
        return False


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
