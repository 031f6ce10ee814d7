"""The terminal that this process was started on, and signals until they have a handler.

Facts      SIGHUP comes when a terminal is closed, and by custom it also tells a server to read its configuration. It
           ends a process that has no handler for it. When a terminal is closed, /dev/tty cannot be opened any more.
           Loading the command takes a fifth of a second. A forked worker process has no handlers for a moment.
Hazard     A reload that is requested in that time ends the service, or a worker process. If the terminal is closed in
           that time, the process later takes itself for one that was started without a terminal.
Answer     The command blocks SIGHUP before it loads anything else, and notes whether there is a terminal. A worker
           process is forked with all signals blocked that it will handle. The kernel keeps what has come until there
           is a handler.
Cost       Two system calls and the opening of a file. The first 20 ms, in which Python itself starts, remain.

Under nohup, which ignores SIGHUP, nothing is held back.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable


class Start:
    """What this process was started with, noted when this module is loaded. `held`: the signals that are blocked until
    they have handlers."""

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
        """Let the signals that were held be delivered, also those that have come meanwhile. Call it once they have
        handlers. Idempotent; no effect if none was held back."""
        held, self.held = self.held, set()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)

    def has_lost_terminal(self) -> bool:
        """Return True if the process should end because its terminal was closed: it was started on one, and not under
        nohup."""
        return self._had_terminal and not self._ignores_hangups and not has_terminal()


def has_terminal() -> bool:
    """Return True if this process has a controlling terminal that is open."""
    terminal = _open_terminal()
    if terminal is not None:
        os.close(terminal)
    return terminal is not None


def may_not_write() -> bool:
    """Return True if this process is a background job of a terminal that stops such jobs when they write (`stty
    tostop`), by SIGTTOU to the whole job."""
    # few processes need it
    import termios

    terminal = _open_terminal()
    if terminal is None:
        return False
    try:
        flags: int = termios.tcgetattr(terminal)[3]
        return os.tcgetpgrp(terminal) != os.getpgrp() and bool(flags & termios.TOSTOP)
    except (OSError, termios.error):
        return False
    finally:
        os.close(terminal)


def _open_terminal() -> int | None:
    """Open the controlling terminal. None if there is none, or if it was closed."""
    try:
        return os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return None


# the start of this process
START = Start()
