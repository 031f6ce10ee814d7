"""The limit of open files: raised for the server, and for nothing that it starts."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from deadlined.service.process.file_limit import raise_file_limit, restore_file_limit
from tests.support.limits import low_file_limit

LOW = 256


@pytest.fixture(autouse=True)
def low_limit() -> Iterator[None]:
    with low_file_limit(LOW):
        yield


def limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def test_it_is_raised_to_the_hard_one_and_can_be_restored() -> None:
    hard = limits()[1]
    raise_file_limit()
    assert limits() == (hard, hard)
    restore_file_limit()
    assert limits() == (LOW, hard)


def test_one_that_was_not_raised_is_not_restored() -> None:
    hard = limits()[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    raise_file_limit()
    restore_file_limit()
    assert limits() == (hard, hard)


# glibc asks by the call that also sets, which a sandbox may refuse
@pytest.mark.parametrize("call", ["getrlimit", "setrlimit"])
# Python's errors for EINVAL, as on macOS, and for what a sandbox answers
@pytest.mark.parametrize("error", [ValueError("current limit exceeds maximum limit"), OSError(38, "not implemented")])
def test_one_that_cannot_be_raised_is_kept(monkeypatch: pytest.MonkeyPatch, error: Exception, call: str) -> None:
    def refuse(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(resource, call, refuse)
        raise_file_limit()
        restore_file_limit()
    assert limits()[0] == LOW
