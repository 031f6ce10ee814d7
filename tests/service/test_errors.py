"""The exit codes of processes that end before they serve."""

from __future__ import annotations

import signal

import pytest

from deadlined.service.errors import before_serving


@pytest.mark.parametrize(
    ("code", "stopping", "becomes"),
    [
        (0, False, 0),
        (-signal.SIGTERM, False, 0),
        (-signal.SIGSEGV, False, 1),
        (3, False, 3),
        (3, True, 0),
        (-signal.SIGTERM, True, 0),
        (-signal.SIGKILL, True, 1),
    ],
)
def test_what_a_process_that_never_served_makes_of_the_exit_code(code: int, stopping: bool, becomes: int) -> None:
    assert before_serving(code, stopping=stopping) == becomes
