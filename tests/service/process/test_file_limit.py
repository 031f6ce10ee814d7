"""The limit of open files: raised for the server, and for nothing that it starts."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator

import pytest

from deadlined.service.process.file_limit import (
    LEAST,
    connections_within,
    free_descriptors,
    raise_file_limit,
    restore_file_limit,
)
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


def test_what_is_open_is_not_free() -> None:
    before = free_descriptors()
    assert 0 < before < LOW
    with open(os.devnull):  # noqa: PTH123, a descriptor
        assert free_descriptors() == before - 1
    assert free_descriptors() == before


def test_without_a_limit_all_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: infinite)
    assert free_descriptors() == math.inf


def test_where_nothing_says_what_is_open_some_are_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(os, "listdir", refuse)
    assert free_descriptors() == LOW - LEAST


@pytest.mark.parametrize(
    ("free", "upstream", "connections"),
    [
        # a server: a tenth is kept, 16 at least and 500 at most, but no more than half
        (1000, 0, 900),
        (80, 0, 64),
        (20, 0, 10),
        (500_000, 0, 499_500),
        (0, 0, 1),
        (math.inf, 0, math.inf),
        # a proxy: half of the others is for upstreams
        (1000, math.inf, 450),
        (80, math.inf, 32),
        (1000, 100, 800),
        (1000, 10_000, 450),
        (0, math.inf, 1),
        (math.inf, math.inf, math.inf),
    ],
)
def test_clients_get_what_a_reserve_leaves(free: float, upstream: float, connections: float) -> None:
    assert connections_within(free, upstream) == connections
