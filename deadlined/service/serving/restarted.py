"""The serving process of `--reload`, as its parent sees it: its start, its drain, its end and its exit code."""

from __future__ import annotations

import math
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from ..config import ServeConfig
from ..errors import CUT, FAILED
from ..log.logs import Log
from ..process.last_resort import MARGIN
from ..process.notify import Notifier
from ..process.signals import STOPS
from .watching import fork_here

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


class ServingProcess:
    """The serving process, one at a time. `notifier`: tells the parent, from the serving process, that it serves."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.notifier: Final = ServingNotifier()
        # 0 if none runs. A process keeps its pid until it is reaped
        self._pid = 0
        # when the process is killed if it still runs, `inf` for never
        self.kill_at: float = math.inf
        self._was_cut = False

    @property
    def runs(self) -> bool:
        """True in the parent while a process runs, or has not been reaped."""
        return self._pid != 0

    def start(self) -> bool:
        """Fork a process. Return True in the parent, False in the process. StartupError if the system refuses."""
        self.notifier.forget()
        self._pid = fork_here()
        return self.runs

    def drain(self) -> None:
        """Have the process drain, if one runs. Its own watchdog ends it one MARGIN after the drain; it is killed one
        MARGIN later."""
        if self.runs:
            self.send(signal.SIGTERM)
            self.kill_at = min(self.kill_at, time.monotonic() + DRAIN + 2 * MARGIN)

    def cut(self) -> None:
        """Kill the process, because of a later signal to the parent."""
        self._was_cut = True
        self.send(signal.SIGKILL)

    def kill_overdue(self) -> None:
        """Kill the process if it has not ended in time."""
        if time.monotonic() >= self.kill_at:
            self.kill_at = math.inf
            self._log("the application did not end in time: killed", level="error", pid=self._pid)
            self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal, if one runs."""
        if self.runs:
            os.kill(self._pid, number)

    def reap(self) -> int | None:
        """Note that the process has ended. Return its exit code, or the number of its signal below 0; None if no
        process has ended."""
        if not self.runs:
            return None
        ended, status = os.waitpid(self._pid, os.WNOHANG)
        if not ended:
            return None
        self._pid, self.kill_at = 0, math.inf
        return os.waitstatus_to_exitcode(status)

    def exit_code(self, code: int) -> int:
        """Return the exit code of a service that stops, and whose process has ended with `code`, as `reap` returns
        it."""
        if code >= 0:
            return code
        # it may have been ended by the signal that ends the parent
        if -code in STOPS:
            return 0
        if not self._was_cut:
            return FAILED
        # one that has not served yet has cut nothing
        return CUT if self.notifier.served else 0


def restarted(config: ServeConfig, sockets: Sequence[socket.socket]) -> ServeConfig:
    """Return the configuration of a serving process. Call this in that process. It listens on the `sockets` that it has
    inherited, and drains for DRAIN seconds at most."""
    # a file that is changed twice in a second would be taken from the cache
    sys.dont_write_bytecode = True
    timeouts = replace(config.timeouts, drain=min(config.timeouts.drain, DRAIN))
    places = tuple(f"fd://{found.detach()}" for found in sockets)
    return msgspec.structs.replace(config, bind=places, timeouts=timeouts)
