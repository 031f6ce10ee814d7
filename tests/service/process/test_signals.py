"""The signals of a process that waits in a selector."""

from __future__ import annotations

import selectors
import signal

import pytest

from deadlined.service.process.signals import SAME_STOP, SignalPipe, StopSignals
from tests.support.command import Starter, read_all

# more than a socket keeps bytes
STORM = 5000


def test_a_signal_is_noted_although_others_have_filled_the_pipe() -> None:
    with selectors.DefaultSelector() as selector:
        pipe = SignalPipe((signal.SIGHUP, signal.SIGTERM), selector)
        pipe.handle()
        try:
            for _ in range(STORM):
                signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert selector.select(0)
            assert pipe.read() == [signal.SIGHUP, signal.SIGTERM, signal.SIGTERM]
            assert not selector.select(0)
            assert pipe.read() == []
        finally:
            pipe.release()


@pytest.mark.parametrize(
    ("times", "cuts"),
    [
        ([50.0], [False]),
        ([50.0, 50.0, 50.01], [False, False, False]),
        # counted from the first one
        ([50.0, 50.05, 50.0 + SAME_STOP, 60.0], [False, False, True, True]),
    ],
)
def test_a_signal_of_the_same_stop_does_not_cut(times: list[float], cuts: list[bool]) -> None:
    signals = StopSignals()
    assert [signals.note(when) for when in times] == cuts


@pytest.mark.parametrize("workers", ["1", "2"])
def test_two_signals_at_once_are_one(start: Starter, workers: str) -> None:
    """`timeout` sends one to its command and one to its group, npm one more than the terminal."""
    process = start("apps:slow", "--drain", "1h", "--workers", workers)
    with process.begin() as client:
        process.wait_until_busy()
        process.signal_at_once(signal.SIGINT, signal.SIGTERM)
        assert read_all(client).endswith("finished")
    assert process.end() == (0, "")
