"""Signals: the first one begins the drain, a later one cuts it, and a blocked event loop does not hold the process.

Facts      A Python signal handler runs in the main thread between two bytecodes, also while an application blocks the
           event loop there. When the interpreter ends, it gives each signal that has such a handler its default back.
Hazard     A drain that the event loop performs never begins if the loop is blocked, and never ends if an application
           ignores its cancellation; the service manager then kills the process, or waits for ever. A signal that comes
           after the drain, while the process ends, changes its exit code.
Answer     The handler starts a thread that ends the process MARGIN after the drain's deadline, whatever happens, and
           only then tells the event loop. If no thread can be started, an alarm of the kernel's takes its place, which
           ends the process by SIGALRM, but process 1 only between two bytecodes. A later signal, if it is not of
           the same stop (`process/signals.py`), moves that deadline to its own time. Once serving has ended, EXIT_GRACE
           is left at most, because Python waits for threads of the application, and the exit code is the drain's. The
           handler stays after the drain; Python's end ignores signals.
Cost       One sleeping thread during a drain. While the main thread is in one call of C code, nothing of this begins:
           with --workers and --reload another process ends this one then, a single process waits for that call.
"""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from ...http import REUSE_GRACE
from ...runtime import call_soon, cancelled_tasks
from ..errors import FAILED
from ..process.children import children_get
from ..process.hangup import Hangup
from ..process.last_resort import MARGIN, end_later, exit_now
from ..process.signals import ALWAYS_STOP, StopSignals, ignore_stops
from ..process.unfinished import busy_place, waited_for
from .starting import replaced_by

# seconds for the end of Python: for threads of the application, and what it has told `atexit`. Sentry sends what it has
# for two seconds; Docker kills ten seconds after its signal
EXIT_GRACE = 5.0

# seconds since its last response for which a worker process that others replace keeps an idle connection: nobody waits
# for its end. Half a second below the period of a client that asks every five seconds
REPLACED_GRACE = 4.5


def reuse_grace(name: str, *, reloads: bool) -> float:
    """Return the `reuse_grace` of `HttpServer.shutdown` in a drain that the signal `name` begins. `reloads`: with
    --reload, where a person waits for the next process. Only a worker process that others replace gets SIGHUP."""
    if reloads:
        return 0.0
    return REPLACED_GRACE if name == signal.SIGHUP.name else REUSE_GRACE


class Stopper:
    """The signal handlers of a serving process: `with Stopper(drain, begin, end, hangup, reload):` in the main thread
    of a run.

    The first SIGTERM or SIGINT begins the drain, unless `request` has begun it: `drain()` returns its seconds, and
    `begin(signal name)` is called in the run. A later signal that is not of the same stop (`StopSignals`, on `clock`)
    calls `end()` in the run. `hangup` handles SIGHUP: it calls `reload()` in the run, or begins a drain as `request`
    does.

    If the process still exists MARGIN seconds after the drain, or after a signal that has cut it, it exits: with the
    code that `served` was given, else with 1. After the `with`, if a drain was begun, a signal that cuts only begins
    that time. If none was begun, the handlers from before are back.

    `end` is None in a worker process and under --reload, where another process ends this one. Then SIGHUP begins the
    drain as well: a supervisor replaces a worker process that has drained, and nothing would replace a single process.
    Signals after the first are ignored, also after the `with`, so that they change neither the application's shutdown
    nor the exit code.
    """

    def __init__(
        self,
        drain: Callable[[], float],
        begin: Callable[[str], object],
        end: Callable[[], object] | None,
        hangup: Hangup,
        reload: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._drain = drain
        self._hangup = hangup
        self._reload = reload
        self._begin = begin
        self._end = end
        self._clock = clock
        self._stops = StopSignals()
        # a drain has been asked for, and the name of the signal or request
        self._begun = False
        self._name = ""
        # a signal has cut the drain: MARGIN runs from then
        self._cut = False
        # the `with` has ended
        self._left = False
        # the exit code once serving has ended
        self._earned: int | None = None
        self._call_soon = call_soon()
        self._cancelled_tasks = cancelled_tasks()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stopper:
        for number in ALWAYS_STOP:
            self._before[number] = replaced_by(number, signal.signal(number, self._on_signal))
        children_get({**self._before, signal.SIGHUP: self._hangup.before})
        hung_up = partial(self._on_signal, signal.SIGHUP, None)
        reload = partial(self._call_soon, self._reload)
        self._hangup.follow(reload if self._end is not None else hung_up, partial(self.request, signal.SIGTERM.name))
        return self

    @property
    def should_exit(self) -> bool:
        """True once a drain has been asked for. sse-starlette asks the object whose method handles SIGTERM, because
        that is uvicorn's server there, and ends its streams, which the drain would cut else. It asks on asyncio
        only."""
        return self._begun

    def request(self, name: str) -> None:
        """Begin the drain, unless it was begun already. `name`: what has asked for it. The request does not count as a
        signal: the first signal after it cuts nothing."""
        if self._begun:
            return
        self._begun = True
        self._name = self._name or name
        drain = self._drain()
        if drain < math.inf:
            end_later(drain + MARGIN, partial(self._end_process, f"the drain of {drain:g} s"))
        self._call_soon(self._begin_drain)

    def served(self, code: int) -> None:
        """Note that serving has ended with the exit code `code`. After a drain nothing but the end of Python is left,
        which waits for threads of the application. If the process still exists EXIT_GRACE seconds from now, it exits
        with `code`."""
        self._earned = code
        if self._begun:
            end_later(EXIT_GRACE, partial(self._end_process, f"{EXIT_GRACE:g} s of the end of its drain"))

    def __exit__(self, *_: object) -> None:
        self._left = True
        self._hangup.leave()
        if self._end is None:
            ignore_stops()
        elif not self._begun:
            for number, handler in self._before.items():
                signal.signal(number, handler)
        else:
            # the handlers stay, and so does what children get in their place
            return
        children_get({})

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        cuts = self._stops.note(self._clock())
        self.request(name)
        if number == signal.SIGHUP:
            # a process that is replaced gets it before SIGTERM; the handlers may run in the other order
            self._name = name
        if cuts and self._end is not None:
            self.end_now(self._end)

    def end_now(self, end: Callable[[], object]) -> None:
        """End the drain by `end()` in the run, because of a later signal to this process or to its supervisor. If the
        process still exists MARGIN seconds from now, it exits."""
        if not self._cut:
            self._cut = True
            end_later(MARGIN, partial(self._end_process, f"{MARGIN:g} s of another signal"))
        if not self._left:
            # else the event loop may be closed
            self._call_soon(end)

    def _begin_drain(self) -> None:
        self._begin(self._name)

    def _end_process(self, limit: str) -> None:
        try:
            why = busy_place() or ("" if self._earned is None else waited_for(self._cancelled_tasks()))
            print(f"deadlined: the process did not end within {limit}; ending it{why}", file=sys.stderr, flush=True)
        finally:
            # also if stderr is closed or broken
            exit_now(FAILED if self._earned is None else self._earned)
