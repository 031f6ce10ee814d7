"""`python -m deadlined` is the command `deadlined`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


def run() -> None:
    """Run the command with the arguments of the process."""
    command = sys.argv[1:2]
    if command == ["health"]:
        _probe()
    serves = command in (["serve"], ["proxy"], ["run"])
    _prepare_signals(serves)
    with _quiet_interrupts():
        from .cli import main

        if serves:
            from .service.log.output import guard_stderr

            # a warning about the configuration that cannot be written must not keep the service from starting
            guard_stderr()
    main(prog_name="deadlined")


def _probe() -> NoReturn:
    """Run `deadlined health`, which does not load the server."""
    with _quiet_interrupts():
        from .health import main

        sys.exit(main(sys.argv[2:]))


def _prepare_signals(serves: bool) -> None:
    """Let no signal be lost, or end the process, that comes before it has a handler."""
    if serves:
        from .terminal import START

        START.hold_hangups()
    if os.getpid() == 1:
        # The kernel does not deliver to process 1, the first of a container, signals for which it has no handler. So a
        # container that is stopped while its application starts would be killed after the whole grace period.
        signal.signal(signal.SIGTERM, _end)


@contextmanager
def _quiet_interrupts() -> Iterator[None]:
    """Let Ctrl-C in this block end the process without a traceback, unless it is ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, _: FrameType | None) -> None:
    """End with the exit code of a process that the signal has ended."""
    os._exit(128 + number)


if __name__ == "__main__":
    run()
