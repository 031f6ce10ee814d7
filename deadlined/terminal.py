"""The terminal that this process was started on, and SIGHUP until it has a handler.

Facts      SIGHUP comes when a terminal is closed, and by custom it also tells a server to read its configuration. It
           ends a process that has no handler for it. When a terminal is closed, /dev/tty cannot be opened any more.
           Loading the command takes a fifth of a second.
Hazard     A reload that is asked for in that time ends the service. If the terminal is closed in that time, it seems
           later as if there had been none.
Answer     The command holds the signal back before it loads anything else: the kernel keeps it until there is a
           handler. Whether there is a terminal is noted at the same time.
Cost       Two system calls and the opening of a file. The first 20 ms, in which Python itself starts, remain.

Under nohup, which ignores SIGHUP, nothing is held back.
"""

from __future__ import annotations

import os
import signal


class Start:
    """What this process was started with, found when this module is loaded."""

    def __init__(self) -> None:
        self._ignores_hangups = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        self._had_terminal = has_terminal()
        self._holds = False

    def hold_hangups(self) -> None:
        """Let SIGHUP wait until `release_hangups`. For the main thread, before there are others."""
        if not self._ignores_hangups:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
            self._holds = True

    def release_hangups(self) -> None:
        """Deliver a SIGHUP that has come, and those that come from now on. Call it once there is a handler. Idempotent;
        no effect if none was held back."""
        if self._holds:
            self._holds = False
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])

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


# of this process
START = Start()
