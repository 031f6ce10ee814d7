"""The command of `deadlined run`: it is started, watched, started again, and ended.

Facts      A server accepts connections some time after its start. A terminal sends Ctrl-C to all processes of its
           foreground. A process that has ended may leave others of its group behind.
Hazard     A command that ends at Ctrl-C answers no request of the drain. One that cannot start is started again and
           again. One that hangs, or outlives this process, keeps its port.
Answer     The command has a session of its own, so that it gets only the signals that are sent to it here: SIGTERM
           after the drain, SIGKILL for its whole group at the deadline, and SIGTERM from the kernel if this process is
           killed (Linux). It is started again after a delay that doubles with each early end. It must accept a
           connection before the service is ready; if it ends TRIES times before that, the service ends.
Cost       A system call every INTERVAL seconds. It takes as long to notice an end; a request may come meanwhile. A
           session of its own has no terminal: the command cannot read one.
"""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count

from ...asgi.lifespan import LEAST_GRACE
from ...runtime import current_time
from ...timing import sleep
from ..errors import FAILED, WRONG_ARGUMENTS, StartupError
from ..log.logs import Log
from ..process.backoff import Backoff
from ..process.file_limit import restore_file_limit
from ..process.last_resort import before_exit, forget
from ..process.parent_death import ending_with_parent
from ..process.signals import ending_of, signal_name
from .place import Place

# seconds between two tests whether it accepts connections, or has ended
INTERVAL = 0.05
# ends before the first connection after which it is not started again
TRIES = 3
# seconds after which the log says that it does not accept connections yet
SLOW = 10.0
# seconds that one test may take: the queue of its socket may be full
_PROBE = 1.0

# there is no such program, or it is none
_NO_PROGRAM = frozenset(
    (
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EACCES,
        errno.EPERM,
        errno.ENOEXEC,
    )
)


class Child:
    """A command that must listen at `place`. `available(True)` is called when it begins to accept connections,
    `available(False)` when it has ended or `refused` was called. For the main thread of a run.

    Call `start`, then `keep` in a task, then `stop`, and `abort` in any case.
    """

    def __init__(self, place: Place, command: Sequence[str], log: Log, available: Callable[[bool], object]) -> None:
        self._place = place
        self._command = tuple(command)
        self._log = log
        self._available = available
        # the process whose end is not noted yet, None if there is none
        self._process: subprocess.Popen[bytes] | None = None
        # when the latest process was started
        self._started = 0.0
        self._backoff = Backoff()
        self._stopping = False
        # the command has refused a connection, and has not accepted one since
        self._refuses = False

    async def start(self) -> None:
        """Start the command, again if it ends, and return when it accepts connections. StartupError if it cannot be
        started, or has ended TRIES times."""
        before_exit(self._kill)
        for tries in count(1):
            try:
                process = self._launch()
            except OSError as error:
                raise _cannot_start(self._command[0], error) from None
            if await self._is_accepting(process):
                return
            how = self._note_end(process, again=tries < TRIES)
            if tries == TRIES:
                raise StartupError(
                    f"the command has ended {TRIES} times without accepting a connection at {self._place.address}, "
                    f"lastly {how}: {shlex.join(self._command)}",
                    FAILED,
                )
            await self._delay()

    async def keep(self) -> None:
        """Start the command again whenever it ends, until `stop`."""
        process = self._process
        while process is not None:
            await self._has_ended(process)
            if self._stopping:
                return
            self._available(False)
            self._note_end(process, again=True)
            process = await self._start_again()

    def refused(self) -> None:
        """Note that the command has refused a connection. Many servers stop listening before they end. The command is
        not available until `keep` finds that it accepts a connection, or has started it again."""
        if self._process is not None and not self._refuses:
            self._refuses = True
            self._available(False)
            self._log("the command refuses connections", level="warning", pid=self._process.pid)

    async def stop(self, deadline: Callable[[], float]) -> None:
        """Send the command SIGTERM, and its group SIGKILL at `deadline()`, which may move, but in LEAST_GRACE seconds
        at the earliest. Return when it has ended. It is not started again."""
        self._stopping = True
        process = self._process
        if process is None:
            return
        self._log("stopping the command", pid=process.pid, signal="SIGTERM")
        process.terminate()
        least = current_time() + LEAST_GRACE
        while process.poll() is None and current_time() < max(deadline(), least):
            await sleep(INTERVAL)
        if process.poll() is None:
            self._log("the command did not end in time: killed", level="error", pid=process.pid)
            self._kill()
            while process.poll() is None:
                await sleep(INTERVAL)
        self._note_end(process, again=False)

    def abort(self) -> None:
        """End the command if it still runs: with SIGTERM, and with SIGKILL after LEAST_GRACE seconds, for which this
        blocks. Idempotent."""
        self._stopping = True
        process = self._process
        if process is not None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(LEAST_GRACE)
            self._kill()
            process.wait()
            self._note_end(process, again=False)
        forget(self._kill)

    def _launch(self) -> subprocess.Popen[bytes]:
        """Start the command. OSError if that is not possible."""
        self._place.clear()
        words = self._place.arguments(self._command)
        process = subprocess.Popen(
            words,
            start_new_session=True,
            preexec_fn=_prepared(),  # noqa: PLW1509, other threads may run: it calls only what is loaded
        )
        self._process, self._started = process, current_time()
        self._log("command started", pid=process.pid, command=shlex.join(words), address=self._place.address)
        return process

    async def _has_ended(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the process has ended. While it refuses connections, test whether it accepts them again."""
        while process.poll() is None:
            if self._refuses and await self._is_accepting(process, told=True):
                self._refuses = False
            await sleep(INTERVAL)
        self._refuses = False

    async def _start_again(self) -> subprocess.Popen[bytes] | None:
        """Start the command after the delay, and again while the system cannot. None once it is to stop."""
        while True:
            await self._delay()
            if self._stopping:
                return None
            try:
                process = self._launch()
            except OSError as error:
                self._backoff.failed(current_time())
                self._log("cannot start the command", level="error", why=_why(error), again_in=self._backoff.delay)
            else:
                await self._is_accepting(process)
                return process

    async def _delay(self) -> None:
        await sleep(max(self._backoff.until - current_time(), 0.0))

    async def _is_accepting(self, process: subprocess.Popen[bytes], told: bool = False) -> bool:
        """Wait until the command accepts connections, and call `available`. Return False if it ends before. `told`: the
        log says already that it does not accept any."""
        while process.poll() is None:
            if await self._accepts():
                self._available(True)
                self._log("command accepts connections", pid=process.pid, after=self._lived())
                return True
            if not told and self._lived() >= SLOW:
                told = True
                facts = {"pid": process.pid, "address": self._place.address}
                self._log("the command does not accept connections yet", level="warning", **facts)
            await sleep(INTERVAL)
        return False

    async def _accepts(self) -> bool:
        """Try to connect."""
        try:
            conn = await self._place.connect(current_time() + _PROBE)
        except OSError:
            # there is no file yet, or nobody listens, or the queue is full; a lack of descriptors passes, too
            return False
        conn.close()
        return True

    def _note_end(self, process: subprocess.Popen[bytes], *, again: bool) -> str:
        """Log that the process has ended, kill what it has left of its group, and set the delay if it is started
        `again`. Return how it has ended, for a message."""
        self._kill()
        self._process = None
        code = process.returncode
        facts = {**ending_of(code, ended_here=not again), "pid": process.pid, "lived": self._lived()}
        if again:
            facts["again_in"] = self._backoff.ended(self._started, current_time())
        self._log("command ended", level="warning" if again else "info", **facts)
        return f"with code {code}" if code >= 0 else f"by {signal_name(-code)}"

    def _kill(self) -> None:
        """Kill the group of the process. May be called in any thread."""
        process = self._process
        if process is not None:
            # The first is the error for a group without members, whose number no other process has got since its end
            # was seen; the second is that of macOS.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def _lived(self) -> float:
        return round(current_time() - self._started, 3)


def _prepared() -> Callable[[], None]:
    """Return what the new process calls before it becomes the command."""
    end_with_parent = ending_with_parent()

    def prepare() -> None:
        end_with_parent()
        restore_file_limit()

    return prepare


def _cannot_start(program: str, error: OSError) -> StartupError:
    """Return the error of a command that the system cannot start. Its exit code says whether the command is wrong, or
    the system lacks something that it may have at the next start."""
    hints = {
        FileNotFoundError: "is it installed, and on PATH?",
        PermissionError: "is it a file that may be executed?",
    }
    hint = next((f"; {hint}" for kind, hint in hints.items() if isinstance(error, kind)), "")
    code = WRONG_ARGUMENTS if error.errno in _NO_PROGRAM else FAILED
    return StartupError(f"cannot start {program}: {_why(error)}{hint}", code)


def _why(error: OSError) -> str:
    return error.strerror or str(error)
