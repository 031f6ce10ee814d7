"""The error of a service that cannot start, and the exit codes."""

from __future__ import annotations

import signal

FAILED = 1
WRONG_ARGUMENTS = 2
CANNOT_BIND = 3
# the drain has cut a request or a connection
CUT = 4


class StartupError(Exception):
    """A service cannot start. The message is one line that says why and what to do; the process exits with `exit_code`.
    `details`: the traceback of the application's error, for people, from the application's own file on; "" if there is
    none."""

    def __init__(self, message: str, exit_code: int = FAILED, details: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.details = details


def cannot_start(what: str, error: OSError) -> StartupError:
    """Return the error of a service whose part `what` the system has refused to start, with `error`."""
    return StartupError(f"cannot start {what}: {error.strerror or error}")


def before_serving(code: int, *, stopping: bool) -> int:
    """Return the exit code of a service that ends because one of its processes has ended before it served. `code`: the
    exit code of the process, or the number of its signal, below 0. `stopping`: the service was stopping anyway. A
    process that was told to end has cut nothing."""
    if stopping:
        return FAILED if code == -signal.SIGKILL else 0
    if code == -signal.SIGTERM:
        return 0
    return code if code >= 0 else FAILED


def worse(one: int, other: int) -> int:
    """Return the exit code of a service whose two processes have ended with the exit codes `one` and `other`."""
    if one == other or other == 0:
        return one
    return CUT if {one, other} == {0, CUT} else FAILED
