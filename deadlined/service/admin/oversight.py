"""The admin process: with several worker processes, the admin listener has a process of its own.

Facts      The supervisor forks, and must not have threads or an event loop. It alone knows all worker processes.
Hazard     A supervisor that serves HTTP can be kept busy, or be ended, by any client that can connect to it.
Answer     The supervisor binds the sockets, forks one more process to serve them, and answers its questions over a
           socket pair. That process is replaced when it ends. It ends when the supervisor is gone.
Cost       A process that shares most of its memory with the supervisor.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket as stdlib
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from ..log.logs import Log
from ..workers.channel import Channel
from ..workers.frames import ASK, CONFIGURE, TELL
from ..workers.overseer import Controls, Overseer, Send
from .address import AdminSockets
from .hub import Hub
from .picture import Question, Status
from .showing import shown

# seconds between the end of an admin process and the start of the next
_PAUSE = 1.0

# seconds that the last one may take to answer what it was asked; its drain is shorter
_LAST_ANSWERS = 3.0

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_log = logging.getLogger("deadlined.admin")


class AdminProcess(Overseer):
    """Keeps a process that serves `sockets`: it calls `serve(socket)`, where `socket` is its end of the connection with
    the supervisor, and ends when that returns."""

    # from `begin` on
    _controls: Controls

    def __init__(self, sockets: AdminSockets, serve: Callable[[stdlib.socket], None], log: Log) -> None:
        self._sockets = sockets
        self._serve = serve
        self._log = log
        # `begin` says how many worker processes there should be
        self._hub = Hub(0, self._status, self._publish, time.monotonic)
        self._channel: Channel | None = None
        # what it shows since a reload, b"" for that of the start
        self._config = b""
        # 0: there is no process
        self._pid = 0
        self._start_at = -math.inf
        # every worker process was ready once: from then on one that is missing is being replaced
        self._complete = False

    # implements Overseer

    def begin(self, controls: Controls) -> None:
        self._controls = controls
        self._hub.want(controls.wanted)
        self._start()

    def joined(self, pid: int, number: int, send: Send) -> None:
        self._hub.joined(pid, number, send)

    def is_ready(self, pid: int) -> None:
        self._hub.is_ready(pid)
        self._note_completeness()

    def is_silent(self, pid: int, silent: bool) -> None:
        self._hub.is_silent(pid, silent)

    def leaves(self, pid: int) -> None:
        self._hub.leaves(pid)

    def want(self, number: int) -> None:
        self._hub.want(number)
        # those that serve may be enough now
        self._note_completeness()

    def configured(self, config: object) -> None:
        self._config = msgspec.json.encode(shown(config))
        self._send_config()

    def told(self, pid: int, answer: bytes) -> None:
        self._hub.told(pid, answer)

    def left(self, pid: int) -> None:
        self._hub.left(pid)

    def until(self) -> float:
        return min(self._hub.until(), math.inf if self._pid else self._start_at)

    def tick(self) -> None:
        self._hub.tick()
        self._reap()
        if not self._pid and time.monotonic() >= self._start_at:
            self._start()

    def abandon(self) -> None:
        if self._channel is not None:
            self._channel.release()
        self._sockets.close(unlink=False)

    def end(self) -> None:
        if self._channel is not None:
            # it ends when its supervisor is gone
            self._channel.close()
        limit = time.monotonic() + _LAST_ANSWERS
        while self._pid and time.monotonic() < limit:
            self._reap()
            time.sleep(0.01)
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self._sockets.close()

    # the process

    def _start(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        ends: tuple[stdlib.socket, ...] = ()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [*_IGNORED, signal.SIGCHLD])
        try:
            ours, theirs = ends = stdlib.socketpair()
            pid = os.fork()
            if not pid:
                ours.close()
                self._run(theirs)
        except OSError as error:
            # no descriptors or no processes are left
            for end in ends:
                end.close()
            self._start_at = time.monotonic() + _PAUSE
            self._log("cannot start the admin process", level="error", why=error.strerror, again_in=_PAUSE)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._pid = pid
        self._channel = Channel(ours, self._controls.selector, self._deliver)
        self._send_config()

    def _send_config(self) -> None:
        if self._channel is not None and self._config:
            self._channel.send(CONFIGURE, self._config)

    def _run(self, socket: stdlib.socket) -> None:
        """Serve in the forked process, and end it. The stack below is the supervisor's: never return there."""
        code = 1
        try:
            self._controls.release()
            for number in _IGNORED:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            self._serve(socket)
            code = 0
        except BaseException:
            _log.exception("the admin process has failed")
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        if not self._pid:
            return
        ended, status = os.waitpid(self._pid, os.WNOHANG)
        if not ended:
            return
        self._pid = 0
        self._start_at = time.monotonic() + _PAUSE
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            if not self._controls.stopping():
                code = os.waitstatus_to_exitcode(status)
                self._log("admin process ended", level="warning", pid=ended, code=code, replaced_in=_PAUSE)

    # its questions

    def _deliver(self, kind: bytes, payload: bytes) -> None:
        if kind != ASK:
            return
        question = msgspec.json.decode(payload, type=Question)
        if question.what == "drain":
            self._controls.stop("POST /drain")
            question = msgspec.structs.replace(question, what="status")
        reloaded = None
        if question.what == "reload":
            reloaded = self._controls.reload("POST /reload")
            question = msgspec.structs.replace(question, what="status")
        self._hub.ask(question, reloaded)

    def _publish(self, picture: bytes) -> None:
        if self._channel is not None:
            self._channel.send(TELL, picture)

    def _note_completeness(self) -> None:
        self._complete = self._complete or self._hub.all_ready

    def _status(self) -> Status:
        if self._controls.stopping():
            return "draining"
        return "ready" if self._complete else "starting"
