"""The error of a service that cannot start, and the exit codes."""

from __future__ import annotations

FAILED = 1
WRONG_ARGUMENTS = 2
CANNOT_BIND = 3
# a drain has cut something
CUT = 4


class StartupError(Exception):
    """A service cannot start. The message is one line that says why and what to do; the process exits with
    `exit_code`. `details` is a traceback of the application's for people, from its own file on; "" if there is none."""

    def __init__(self, message: str, exit_code: int = FAILED, details: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.details = details


def worse(one: int, other: int) -> int:
    """Return the exit code of a service of which two processes have ended with these."""
    if one == other or other == 0:
        return one
    return CUT if {one, other} == {0, CUT} else FAILED
