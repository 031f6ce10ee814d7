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

import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ..config import ServeConfig
from ..listening.listening import take_places
from ..log.logs import Log
from ..process.notify import Notifier
from ..process.signals import ALWAYS_STOP, STOPS, SignalPipe, StopSignals
from ..process.waiting import at_once
from .administered import bind_admin
from .restarted import ServingProcess, restarted
from .watching import Watcher, directories_of

if TYPE_CHECKING:
    from ..admin.address import AdminSockets


class Reloader:
    """The parent of the serving process. For the main thread of a process without other threads. `notifier`: tells the
    service manager what the parent does. `serving`: the serving process. `admin`: in a serving process the sockets of
    the admin listener, if there is one; their file is the parent's.

    StartupError if it cannot listen, or watch.
    """

    def __init__(self, config: ServeConfig, log: Log, notifier: Notifier) -> None:
        self._config = config
        self._log = log
        self._notifier = notifier
        self.serving: Final = ServingProcess(log)
        directories = directories_of(config)
        self._sockets: list[socket.socket] = []
        self._unlinks: list[Callable[[], object]] = []
        self.admin: AdminSockets | None = None
        self._is_parent = True
        self._selector = selectors.DefaultSelector()
        self._signals = SignalPipe(_signals(), self._selector)
        self._watcher = Watcher(directories)
        # a serving process is to be started, once none runs
        self._wanted = False
        self._stopping = False
        self._stops = StopSignals()
        # of the service, if it stops now
        self._code = 0

    def run(self) -> ServeConfig | int:
        """Serve and reload until a signal. Returns the exit code, and in each serving process its configuration."""
        try:
            self._open()
            self._signals.handle()
            self._start_watcher()
            while self.serving.runs or not self._stopping:
                if self._wanted and not self.serving.runs:
                    self._wanted = False
                    if (config := self._start()) is not None:
                        return config
                self._wait()
            self._signals.ignore_stops()
        except BaseException:
            self.serving.send(signal.SIGTERM)
            raise
        finally:
            if self._is_parent:
                self._close()
        return self._code

    def _open(self) -> None:
        """Listen everywhere, before the application is started: a person with a browser would rather wait for it."""
        places = take_places(self._config)
        self._sockets = [each for place in places for each in place.sockets]
        self._unlinks += [place.unlink for place in places]
        for place in places:
            place.listen()
        if admin := bind_admin(self._config.admin, self._config.admin_token_file):
            if admin.unlink is not None:
                self._unlinks.append(admin.unlink)
            # a serving process must not remove the file
            self.admin = replace(admin, unlink=None)

    def _start_watcher(self) -> None:
        self._selector.register(self._watcher.messages, selectors.EVENT_READ)
        self._watcher.start(self._listening())

    def _close(self) -> None:
        """End the watcher, remove the files of unix sockets, and close all."""
        self._watcher.end()
        for unlink in self._unlinks:
            unlink()
        self._signals.release()
        self._selector.close()
        for found in self._listening():
            found.close()

    def _listening(self) -> list[socket.socket]:
        return [*self._sockets, *(self.admin.sockets if self.admin else ())]

    def _start(self) -> ServeConfig | None:
        """Fork a serving process. Return its configuration there, None in the parent."""
        before = self._signals.block()
        in_parent = self.serving.start()
        if not in_parent:
            self._release()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return None if in_parent else restarted(self._config, self._sockets)

    def _release(self) -> None:
        """Give up what is the parent's, in a serving process."""
        self._is_parent = False
        self._signals.release()
        # a shell starts its background jobs with SIGINT ignored, and this process is none
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        self._watcher.release()

    def _wait(self) -> None:
        """Sleep until files change, the serving process ends or is to be killed, a signal comes, or the service manager
        is to be told."""
        seconds = min(self._notifier.attend(), self.serving.kill_at - time.monotonic())
        for key, _ in self._selector.select(at_once(seconds)):
            if key.fileobj is self._watcher.messages:
                self._changed(self._watcher.receive())
            else:
                self._read_signals(time.monotonic())
        self.serving.kill_overdue()

    def _read_signals(self, now: float) -> None:
        for number in self._signals.read():
            if number in STOPS:
                self._stop(number, now)
        # after them: a Ctrl-C reaches the serving process, too, which may have ended by it
        self._reap()

    def _changed(self, files: list[str]) -> None:
        """Begin the next serving process; the first one, without `files`, when they are watched."""
        if self._stopping:
            return
        self._wanted = True
        if files:
            self._log("reloading", changed=files)
            self.serving.drain()
        else:
            self._notifier.ready("listening, and restarting the application when a file changes")

    def _reap(self) -> None:
        code = self.serving.reap()
        if code is None:
            return
        self._code = self.serving.exit_code(code)
        if not self._wanted and not self._stopping:
            # it has said why
            self._log("the application has ended; waiting for a change", code=code)

    def _stop(self, number: signal.Signals, now: float) -> None:
        """End the serving process, and at a later signal kill it."""
        cuts = self._stops.note(now)
        # a terminal and a shell send SIGHUP both
        if self._stopping and (not cuts or number == signal.SIGHUP):
            return
        self._log("stopping", signal=number.name)
        if cuts:
            self.serving.cut()
            return
        self._notifier.stopping(f"{number.name}: the serving process drains")
        self._stopping = True
        self._code = 0
        self.serving.drain()


def _signals() -> list[signal.Signals]:
    """Return the signals of the parent. A closed terminal sends SIGHUP to all processes; nohup ignores it, and so does
    what it starts."""
    ignores_hangups = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [*ALWAYS_STOP, signal.SIGCHLD, *([] if ignores_hangups else [signal.SIGHUP])]
