"""The terminal that this process was started on, and signals until they have a handler.

Facts      SIGHUP comes when a terminal is closed, and by custom it also tells a server to read its configuration. It
           ends a process that has no handler for it. When a terminal is closed, /dev/tty cannot be opened any more.
           Loading the command takes a fifth of a second. A forked worker process has no handlers for a moment.
Hazard     A reload that is asked for in that time ends the service, or a worker process of it. If the terminal is
           closed in that time, it seems later as if there had been none.
Answer     The command holds the signal back before it loads anything else, and a new process all that it will handle:
           the kernel keeps them until there is a handler. Whether there is a terminal is noted at the same time.
Cost       Two system calls and the opening of a file. The first 20 ms, in which Python itself starts, remain.

Under nohup, which ignores SIGHUP, nothing is held back.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable


class Start:
    """What this process was started with, found when this module is loaded. `held`: the signals that wait for their
    handlers."""

    def __init__(self) -> None:
        self._ignores_hangups = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        self._had_terminal = has_terminal()
        self.held: set[signal.Signals] = set()

    def hold_hangups(self) -> None:
        """Let SIGHUP wait until `release`, unless it is ignored. For the main thread, before there are others."""
        if not self._ignores_hangups:
            self.hold([signal.SIGHUP])

    def hold(self, signals: Iterable[signal.Signals]) -> None:
        """Let `signals` wait until `release`. For the main thread, before there are others."""
        self.held.update(signals)
        signal.pthread_sigmask(signal.SIG_BLOCK, self.held)

    def release(self) -> None:
        """Deliver the signals that were held and have come, and those that come from now on. Call it once they have
        handlers. Idempotent; no effect if none was held back."""
        held, self.held = self.held, set()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)

    def has_lost_terminal(self) -> bool:
        """Return True if the process should end with its terminal: it was started on one, and not under nohup, and that
        is gone."""
        return self._had_terminal and not self._ignores_hangups and not has_terminal()


def has_terminal() -> bool:
    """Return True if this process has a controlling terminal that is open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def may_not_write() -> bool:
    """Return True if this process is a background job of a terminal that stops such jobs when they write (`stty
    tostop`), by SIGTTOU to the whole job."""
    # most processes need it never
    import termios

    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        flags: int = termios.tcgetattr(terminal)[3]
        return os.tcgetpgrp(terminal) != os.getpgrp() and bool(flags & termios.TOSTOP)
    except (OSError, termios.error):
        return False
    finally:
        os.close(terminal)


# of this process
START = Start()
