"""A stop while the application starts: it is a stop like any other, and nothing was cut.

Facts      Before a process serves, SIGTERM ends it by the signal, and Ctrl-C raises KeyboardInterrupt wherever the main
           thread is, or as the event loop says. A terminal sends SIGINT to all processes of a service, and a supervisor
           then SIGTERM to those that it has started; the two come in any order. A service manager or a shell that stops
           a service looks at its exit code.
Hazard     A service that is stopped while it starts counts as one that has failed, and is started again. What the
           application has begun to start is not undone. A second KeyboardInterrupt cuts off the blocks that the first
           one runs.
Answer     Until it serves (`stopping.py`), SIGTERM does what Ctrl-C does: the application's own `finally` and `async
           with` blocks run, and the process exits with 0. A second SIGTERM, or MARGIN seconds, end it at once, with 0
           as well, and so does any signal when the start has ended and the process has not; but none that is of the
           same stop as the first one (`process/signals.py`). SIGTERM after Ctrl-C interrupts nothing again, and begins
           the MARGIN. A process that has a supervisor is told several times to stop, and only the first time
           interrupts. So SIGINT is handled here, too, and then does what its handler from before does: Python's own,
           or, in a run, that of the event loop. Once the application has started, it must be told to shut down, and a
           signal interrupts nothing: it is kept until the process serves, moments later, and is an ordinary stop then.
Cost       A start that is busy in C code, an import for example, notices the signal when that returns.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

from ..process.children import children_get
from ..process.last_resort import MARGIN, call_in_thread, exit_now
from ..process.signals import ALWAYS_STOP, StopSignals


class Starting:
    """The handler of SIGTERM and SIGINT, from its construction until other handlers replace it. For the main thread.

    `replaced`: the handlers that it has replaced. Children of the application get them, and `hangup` as that of SIGHUP.
    `supervised`: another process has started this one, and ends it. `has_served`: the process serves, or has served.
    """

    def __init__(
        self,
        hangup: Any = None,
        *,
        supervised: bool = False,
        end: Callable[[int], object] = exit_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.replaced: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in ALWAYS_STOP}
        self.has_served = False
        self._supervised = supervised
        self._end = end
        self._clock = clock
        self._stops = StopSignals()
        # the signal that has ended the start, and whether SIGTERM has come
        self._first: signal.Signals | None = None
        self._terminated = False
        # the application has started, and the signals that have come since
        self._keeps = False
        self._kept: list[int] = []
        # the signals that `around_run` has blocked
        self._held: set[signal.Signals] = set()
        others = {} if hangup is None else {signal.SIGHUP: hangup}
        children_get({**self.replaced, **others})
        signal.signal(signal.SIGTERM, self)
        self._take_interrupts()

    @property
    def stopped_by(self) -> str:
        """The name of the signal that has ended the start, if one has."""
        return (self._first or signal.SIGINT).name

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """End the start as Ctrl-C does, once. A later signal that cuts interrupts again if it is SIGINT, and ends the
        process if it is not the first SIGTERM."""
        cuts = self._stops.note(self._clock()) and not self._supervised
        if self._keeps and self._first is None:
            self._keep(number, cuts)
        elif number == signal.SIGTERM:
            self._terminate(frame, cuts)
        elif self._first is None or cuts:
            self._first = self._first or signal.SIGINT
            self.replaced[signal.SIGINT](number, frame)

    def keep_signals(self) -> None:
        """Keep all further signals for the handlers that replace this one: the application has started."""
        self._keeps = True

    def pass_on(self) -> None:
        """Send the kept signals again, to the handlers that have replaced this one."""
        kept, self._kept = self._kept, []
        for number in kept:
            signal.raise_signal(number)

    def go_on(self) -> None:
        """Raise KeyboardInterrupt once more if a signal has ended the start: something has swallowed the first one."""
        if self._first is not None:
            raise KeyboardInterrupt

    @contextmanager
    def around_run(self) -> Iterator[None]:
        """Run an event loop in this block, and its whole main task in a block of `in_run`.

        An event loop replaces no handler of SIGINT but Python's own, so Python's own is back when the loop begins.
        SIGTERM and SIGINT are blocked until `in_run`: before it they would interrupt the loop itself, even if a thread
        of the application receives them. Raise KeyboardInterrupt as `go_on` does.
        """
        self.go_on()
        self._held = {*ALWAYS_STOP} - signal.pthread_sigmask(signal.SIG_BLOCK, ALWAYS_STOP)
        try:
            self._give_interrupts_back()
            yield
        finally:
            self._take_interrupts()

    @contextmanager
    def in_run(self) -> Iterator[None]:
        """Handle SIGINT before the handler that the event loop has installed."""
        try:
            self._take_interrupts()
            yield
        finally:
            # where it would not be called again, the end of the loop is not interrupted either
            if self._first is None or not self._supervised:
                self._give_interrupts_back()

    def end_at_next_signal(self) -> None:
        """Let the next signal that is not of the same stop end the process at once, with 0: the start has ended, and
        what is left may take long. A process that has a supervisor ignores signals."""
        # Python notes an interrupt that has left a call of `exec`, which every dataclass takes, and would end the
        # process by SIGINT in the end. Another call clears the note
        exec("")
        for number in ALWAYS_STOP:
            signal.signal(number, signal.SIG_IGN if self._supervised else self._end_at_once)

    def _end_at_once(self, number: int, frame: FrameType | None) -> None:
        # where no signal has ended the start, this one begins no stop that it could belong to
        if self._stops.note(self._clock()) or self._first is None:
            self._end(0)

    def _keep(self, number: int, cuts: bool) -> None:
        # the application may block the event loop
        if cuts or not (self._kept or call_in_thread(MARGIN, self._end_if_kept)):
            self._end(0)
        elif number not in self._kept:
            self._kept.append(number)

    def _end_if_kept(self) -> None:
        if self._kept:
            self._end(0)

    def _terminate(self, frame: FrameType | None, cuts: bool) -> None:
        if self._terminated:
            if cuts:
                self._end(0)
            return
        # first of all: Ctrl-C that comes in between is of the same stop
        interrupts, self._first = self._first is None, self._first or signal.SIGTERM
        self._terminated = True
        interrupt = replaced_by(signal.SIGINT, signal.getsignal(signal.SIGINT))
        if not callable(interrupt):
            # a shell starts its background jobs with SIGINT ignored
            self._end(0)
        if not call_in_thread(MARGIN, partial(self._end, 0)):
            self._end(0)
        if interrupts:
            interrupt(signal.SIGINT, frame)

    def _take_interrupts(self) -> None:
        """Replace the handler of SIGINT, unless the signal is ignored, and unblock the signals."""
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and handler is not self:
            self.replaced[signal.SIGINT] = handler
            signal.signal(signal.SIGINT, self)
        held, self._held = self._held, set()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)

    def _give_interrupts_back(self) -> None:
        before = self.replaced[signal.SIGINT]
        if signal.getsignal(signal.SIGINT) is self:
            signal.signal(signal.SIGINT, before)


def replaced_by(number: signal.Signals, handler: Any) -> Any:
    """Return what handled the signal `number` before `handler`, if that is a `Starting`, else `handler`."""
    return handler.replaced[number] if isinstance(handler, Starting) else handler
