"""`--reload`: a parent that restarts the serving process when a file of the application changes.

Facts      Python cannot import a changed program again in the same process. A program that is being edited is often
           broken for a while.
Hazard     Clients that come while nothing listens are refused. A parent that ends with its broken child has to be
           started again by hand. Ctrl-C in a terminal is a signal to all its processes.
Answer     The parent has the listening sockets, those of the admin listener too, and never imports the application;
           it forks a serving process, which inherits them. When files change, that process drains, for DRAIN seconds at
           most, and the next one is forked. One that does not end then, because it is busy in C code and has not
           noticed the signal, is killed. Connections that come meanwhile wait in the sockets' queues. If the process
           ends by itself, the parent waits for the next change. Signals after the first do nothing to the serving
           process (`stopping.py`). To a service manager the parent is the service: it serves from when files are
           watched until a signal, whatever becomes of the serving processes.
Cost       Two processes that sleep.
"""

from __future__ import annotations

import math
import mmap
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ..config import ServeConfig
from ..errors import CUT, FAILED, WRONG_ARGUMENTS, StartupError
from ..listening.listening import open_sockets
from ..log.logs import Log
from ..process.last_resort import MARGIN
from ..process.notify import Notifier
from ..process.parent_death import fork
from ..process.signals import ALWAYS_STOP, STOPS, SignalPipe, StopSignals
from ..process.waiting import at_once
from .administered import bind_admin
from .watching import CHANGED, LONGEST, watch

if TYPE_CHECKING:
    from ..admin.address import AdminSockets

# seconds that a serving process has to drain: a person waits for it
DRAIN: Final = 2.0


class ServingNotifier(Notifier):
    """Tells the parent instead of a service manager that the serving process serves, by a byte that both see."""

    def __init__(self) -> None:
        super().__init__()
        self._served = mmap.mmap(-1, 1)

    @property
    def served(self) -> bool:
        """True if the latest serving process has served."""
        return self._served[0] != 0

    def forget(self) -> None:
        """Begin anew, for the next serving process."""
        self._served[0] = 0

    def ready(self, status: str) -> None:
        self._served[0] = 1


class Reloader:
    """The parent of the serving process. For the main thread of a process without other threads. `notifier`: tells the
    service manager what the parent does, `serving` the parent what its serving process does. `admin`: in a serving
    process the sockets of the admin listener, if there is one, whose file is the parent's.

    StartupError if it cannot listen, or watch.
    """

    def __init__(self, config: ServeConfig, log: Log, notifier: Notifier) -> None:
        self._config = config
        self._log = log
        self._notifier = notifier
        self.serving: Final = ServingNotifier()
        self._directories = _directories(config)
        self._sockets: list[socket.socket] = []
        self._unlinks: list[Callable[[], object]] = []
        self.admin: AdminSockets | None = None
        self._is_parent = True
        self._selector = selectors.DefaultSelector()
        self._signals = SignalPipe(_signals(), self._selector)
        self._changes, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._watcher = 0
        # the serving process, 0 if none runs, and when it is killed if it still runs then, `inf` for never
        self._serving = 0
        self._kill_at = math.inf
        # start a serving process, once none runs
        self._wanted = False
        self._stopping = False
        self._stops = StopSignals()
        # a later signal has killed the serving process
        self._was_cut = False
        self._code = 0

    def run(self) -> ServeConfig | int:
        """Serve and reload until a signal. Returns the exit code, and in each serving process its configuration."""
        try:
            self._open()
            self._signals.handle()
            self._start_watcher()
            while not (self._stopping and not self._serving):
                if self._wanted and not self._serving:
                    self._wanted = False
                    if (config := self._start()) is not None:
                        return config
                self._wait()
            self._signals.ignore_stops()
        except BaseException:
            self._kill(signal.SIGTERM)
            raise
        finally:
            if self._is_parent:
                self._close()
        return self._code

    def _open(self) -> None:
        """Listen everywhere."""
        self._sockets, unlinks = open_sockets(self._config)
        self._unlinks += unlinks
        if admin := bind_admin(self._config.admin, self._config.admin_token_file):
            if admin.unlink is not None:
                self._unlinks.append(admin.unlink)
            # a serving process must not remove the file
            self.admin = replace(admin, unlink=None)

    def _start_watcher(self) -> None:
        self._changes.setblocking(False)
        self._selector.register(self._changes, selectors.EVENT_READ)
        pid = _fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            for found in (*self._listening(), self._changes):
                found.close()
            watch(self._directories, self._theirs)
        self._watcher = pid
        self._theirs.close()

    def _close(self) -> None:
        """End the watcher, remove the files of unix sockets, and close all."""
        if self._watcher:
            os.kill(self._watcher, signal.SIGKILL)
            os.waitpid(self._watcher, 0)
        for unlink in self._unlinks:
            unlink()
        self._signals.release()
        self._selector.close()
        for found in (*self._listening(), self._changes, self._theirs):
            found.close()

    def _listening(self) -> list[socket.socket]:
        return [*self._sockets, *(self.admin.sockets if self.admin else ())]

    def _start(self) -> ServeConfig | None:
        """Fork a serving process. Returns its configuration there, None in the parent."""
        self.serving.forget()
        before = self._signals.block()
        self._serving = _fork()
        if not self._serving:
            self._release()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self._config_of_serving() if not self._serving else None

    def _release(self) -> None:
        """Give up what is the parent's, in a serving process."""
        self._is_parent = False
        self._signals.release()
        # a shell starts its background jobs with SIGINT ignored, and this process is none
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        self._changes.close()

    def _config_of_serving(self) -> ServeConfig:
        """Return the configuration of a serving process: it listens on the sockets that it has inherited."""
        # a file that is changed twice in a second would be taken from the cache
        sys.dont_write_bytecode = True
        timeouts = self._config.timeouts
        places = tuple(f"fd://{found.detach()}" for found in self._sockets)
        return msgspec.structs.replace(
            self._config, bind=places, timeouts=replace(timeouts, drain=min(timeouts.drain, DRAIN))
        )

    def _wait(self) -> None:
        """Sleep until files change, the serving process ends or is to be killed, a signal comes, or the service manager
        is to be told."""
        seconds = min(self._notifier.attend(), self._kill_at - time.monotonic())
        for key, _ in self._selector.select(at_once(seconds)):
            if key.fileobj is self._changes:
                self._changed(self._changes.recv(LONGEST))
            else:
                self._read_signals(time.monotonic())
        self._kill_overdue()

    def _read_signals(self, now: float) -> None:
        for number in self._signals.read():
            if number in STOPS:
                self._stop(number, now)
        # after them: a Ctrl-C reaches the serving process, too, which may have ended by it
        self._reap()

    def _changed(self, message: bytes) -> None:
        """Begin the next serving process. The first message says that files are watched, and names none."""
        if message[:1] != CHANGED:
            why = message[1:].decode(errors="replace") or "the process that watches has ended"
            raise StartupError(f"--reload: files cannot be watched: {why}", FAILED)
        if self._stopping:
            return
        self._wanted = True
        if names := os.fsdecode(message[1:]):
            self._log("reloading", changed=names.splitlines())
            self._drain()
        else:
            self._notifier.ready("listening, and restarting the application when a file changes")

    def _reap(self) -> None:
        if not self._serving:
            return
        ended, status = os.waitpid(self._serving, os.WNOHANG)
        if not ended:
            return
        self._serving, self._kill_at = 0, math.inf
        code = os.waitstatus_to_exitcode(status)
        self._code = self._exit_code(code)
        if not self._wanted and not self._stopping:
            # it has said why
            self._log("the application has ended; waiting for a change", code=code)

    def _exit_code(self, code: int) -> int:
        """Return the exit code of a service that stops, and whose serving process has ended with `code`."""
        if code >= 0:
            return code
        # it may have been ended by the signal that ends this process
        if -code in STOPS:
            return 0
        if not self._was_cut:
            return FAILED
        # one that has not served yet has cut nothing
        return CUT if self.serving.served else 0

    def _stop(self, number: signal.Signals, now: float) -> None:
        """End the serving process, and at a later signal kill it."""
        cuts = self._stops.note(now)
        # a terminal and a shell send SIGHUP both
        if self._stopping and (not cuts or number == signal.SIGHUP):
            return
        self._log("stopping", signal=number.name)
        self._notifier.stopping(f"{number.name}: the serving process drains")
        if cuts:
            self._was_cut = True
            self._kill(signal.SIGKILL)
            return
        self._stopping = True
        self._code = 0
        self._drain()

    def _drain(self) -> None:
        """Have the serving process drain. Its own watchdog ends it one MARGIN after the drain."""
        if self._serving:
            self._kill(signal.SIGTERM)
            self._kill_at = min(self._kill_at, time.monotonic() + DRAIN + 2 * MARGIN)

    def _kill_overdue(self) -> None:
        if time.monotonic() >= self._kill_at:
            self._kill_at = math.inf
            self._log("the application did not end in time: killed", level="error", pid=self._serving)
            self._kill(signal.SIGKILL)

    def _kill(self, number: signal.Signals) -> None:
        # a process keeps its pid until it is reaped
        if self._serving:
            os.kill(self._serving, number)


def _signals() -> list[signal.Signals]:
    """Return the signals of the parent. A closed terminal sends SIGHUP to all processes; nohup ignores it, and so does
    what it starts."""
    ignores_hangups = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [*ALWAYS_STOP, signal.SIGCHLD, *([] if ignores_hangups else [signal.SIGHUP])]


def _directories(config: ServeConfig) -> list[str]:
    """Return what to watch. StartupError if it is not there, or watchfiles is not."""
    if find_spec("watchfiles") is None:
        hint = "pip install 'deadlined[reload]'"
        raise StartupError(f"--reload: watchfiles is not installed; {hint}", WRONG_ARGUMENTS)
    directories = list(config.reload_dir) or [config.app_dir or "."]
    for directory in directories:
        if not Path(directory).is_dir():
            raise StartupError(f"--reload-dir {directory}: there is no such directory", WRONG_ARGUMENTS)
    return directories


def _fork() -> int:
    try:
        return fork()
    except OSError as error:
        raise StartupError(f"--reload: cannot start a process: {error.strerror}", FAILED) from None
