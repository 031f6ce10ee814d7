"""Why a service did not start, in one line and one exit code."""

from __future__ import annotations

FAILED = 1
WRONG_ARGUMENTS = 2
CANNOT_BIND = 3


class StartupError(Exception):
    """Says in one line what is wrong and what to do; `exit_code` is what the process ends with."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
