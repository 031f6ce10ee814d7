"""A facility on each exact queue, and a journal of what fires."""

from __future__ import annotations

import pytest

from deadlined.timers import Timers
from tests.support.timers import QUEUES, Journal


@pytest.fixture(params=QUEUES)
def timers(request: pytest.FixtureRequest) -> Timers:
    return Timers(request.param)


@pytest.fixture
def journal() -> Journal:
    return Journal()
