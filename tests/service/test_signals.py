"""The signals of a process that waits in a selector."""

from __future__ import annotations

import selectors
import signal

from deadlined.service.signals import SignalPipe

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
