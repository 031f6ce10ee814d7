"""A poller on a fake kernel; each test runs with both halves, and with both methods that set a deadline."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

import pytest

from deadlined.poll import (
    READ,
    WRITE,
    Half,
    PollDesc,
)
from tests.support.poll import FD, Rig, Setter


@pytest.fixture(params=["set_deadline", "set_timeout"], autouse=True)
def setter(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test runs once with either method."""
    Setter.name = request.param
    yield
    Setter.name = "set_deadline"


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def desc(rig: Rig) -> PollDesc:
    return rig.poller.open(FD)


@pytest.fixture(params=["read", "write"])
def side(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def half(desc: PollDesc, side: str) -> Half:
    found: Half = attrgetter(side)(desc)
    return found


@pytest.fixture
def other(desc: PollDesc, side: str) -> Half:
    return desc.write if side == "read" else desc.read


@pytest.fixture
def edge(side: str) -> int:
    """The event that `half` waits for."""
    return READ if side == "read" else WRITE
