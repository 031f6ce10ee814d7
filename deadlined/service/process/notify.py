"""Messages to a service manager: systemd's notification protocol, sd_notify(3).

Facts      NOTIFY_SOCKET names a socket to a service of Type=notify: a path or, with a leading @, an abstract name. The
           service sends it datagrams of lines NAME=value: READY=1, RELOADING=1 with the clock in MONOTONIC_USEC,
           STOPPING=1, STATUS=text, and WATCHDOG=1 more often than every WATCHDOG_USEC, if WATCHDOG_PID is its process.
Hazard     A program that the service starts inherits the variables, and could speak for it. A manager that does not
           read must not block the service, nor kill it later because it has not heard that it serves.
Answer     The variables are removed when they are read. A datagram that cannot be sent at once is dropped; but the
           latest state (ready, reloading, stopping) is kept, and sent again every AGAIN seconds.
Cost       About 80 lines instead of a dependency: the packages sdnotify and systemd-python know no RELOADING=1, or need
           libsystemd.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import time
from collections.abc import Callable, MutableMapping

from ...net.errors import SHORTAGES

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

# the descriptor of the first socket that a service manager passes
_FIRST_SOCKET = 3

# seconds between two attempts to send a state
AGAIN = 1.0

# the manager's queue is full, or this machine or process is short of something: it may pass
_PASSING = SHORTAGES | {errno.EAGAIN}


class Notifier:
    """Tells the service manager what the service does; without one it does nothing. `watchdog`: seconds within which a
    sign of life is wanted, 0.0 for none. `on_unsent()` is called when a state could not be sent: then `resend` must be
    called every AGAIN seconds while `unsent` is True."""

    def __init__(self, address: str = "", watchdog: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog: float = watchdog if address else 0.0
        self.on_unsent: Callable[[], object] = lambda: None
        # the latest state, b"" once it was sent
        self._state = b""

    def ready(self, status: str) -> None:
        """Say that the service serves, also after a reload. `status` is a line for people."""
        self._enter("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Say that the configuration is read again; `ready` ends that."""
        self._enter("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        """Say that the service drains."""
        self._enter("STOPPING=1", f"STATUS={status}")

    def alive(self) -> None:
        """Give the sign of life that the watchdog wants."""
        self.resend()
        self._send(b"WATCHDOG=1")

    def attend(self) -> float:
        """Send what is due now, for a process without an event loop. Return in how many seconds at most this must be
        called again, `inf` if it need not."""
        pauses = []
        if self.watchdog:
            self.alive()
            pauses.append(self.watchdog / 2)
        self.resend()
        if self.unsent:
            pauses.append(AGAIN)
        return min(pauses, default=math.inf)

    @property
    def unsent(self) -> bool:
        """True if the manager does not know the latest state, and may listen later."""
        return bool(self._state)

    def resend(self) -> None:
        """Send the latest state if it was not sent yet."""
        if self._state and self._send(self._state):
            self._state = b""

    def _enter(self, *lines: str) -> None:
        # an earlier state that was not sent is out of date
        self._state = "\n".join(line.replace("\n", " ") for line in lines).encode()
        self.resend()
        if self._state:
            self.on_unsent()

    def _send(self, message: bytes) -> bool:
        """Send a message. Return False if it may be possible later."""
        if not self._address:
            return True
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                end.setblocking(False)
                end.sendto(message, self._address)
        except OSError as error:
            # a service must not fail because its manager does not listen, and nothing else needs to know
            return error.errno not in _PASSING
        return True


def notifier(environment: MutableMapping[str, str]) -> Notifier:
    """Make the notifier of this process from the variables of `environment`, and remove them there."""
    address, period, pid = (environment.pop(name, "") for name in _VARIABLES)
    if not address.startswith(("/", "@")):
        return Notifier()
    for_us = not pid or pid == str(os.getpid())
    return Notifier(address, int(period) / 1e6 if for_us and period.isdecimal() else 0.0)


def inherited_sockets(environment: MutableMapping[str, str]) -> int:
    """Return how many listening sockets the service manager has passed, from descriptor 3 on (sd_listen_fds(3)), and
    remove the variables that say so. As there, no program that is started from now on gets the sockets."""
    pid, text, _ = (environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    number = int(text) if pid == str(os.getpid()) and text.isdecimal() else 0
    for found in range(number):
        try:
            os.set_inheritable(_FIRST_SOCKET + found, False)
        except OSError:
            # the service cannot listen there, and says so; of those behind it there may be billions
            return found + 1
    return number
