"""Which signal begins a drain, and how long it keeps idle connections."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator

import pytest
from trio.testing import wait_all_tasks_blocked

from deadlined.http import REUSE_GRACE
from deadlined.service.hangup import Hangup
from deadlined.service.stopping import REPLACED_GRACE, Stopper, reuse_grace


@pytest.fixture
def hangup() -> Iterator[Hangup]:
    """A handler of SIGHUP in a process that has a supervisor; the handlers of before are restored."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    yield Hangup(supervised=True)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("signals", "first"),
    [
        ([signal.SIGHUP, signal.SIGTERM], "SIGHUP"),
        # a handler is interrupted by the next signal before its first step
        ([signal.SIGTERM, signal.SIGHUP], "SIGHUP"),
        ([signal.SIGTERM, signal.SIGTERM], "SIGTERM"),
        ([signal.SIGINT, signal.SIGTERM], "SIGINT"),
    ],
)
async def test_one_that_is_replaced_knows_it_in_whichever_order_its_handlers_run(
    signals: list[signal.Signals], first: str, hangup: Hangup
) -> None:
    begun: list[str] = []
    with Stopper(lambda: math.inf, begun.append, None, hangup, bool):
        for number in signals:
            signal.raise_signal(number)
        await wait_all_tasks_blocked(0.01)
    assert begun == [first]


@pytest.mark.parametrize(
    ("name", "reloads", "grace"),
    [
        ("SIGTERM", False, REUSE_GRACE),
        ("SIGINT", False, REUSE_GRACE),
        ("SIGHUP", False, REPLACED_GRACE),
        ("SIGTERM", True, 0.0),
        ("SIGHUP", True, 0.0),
    ],
)
def test_one_that_is_replaced_has_time_and_one_that_a_person_waits_for_has_none(
    name: str, reloads: bool, grace: float
) -> None:
    assert reuse_grace(name, reloads=reloads) == grace
    assert 0.0 < REUSE_GRACE < REPLACED_GRACE
