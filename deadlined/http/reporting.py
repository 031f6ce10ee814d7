"""Calls of loggers and observers that raise nothing into the server but KeyboardInterrupt."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from collections.abc import Callable
from typing import Final, TypeVar

_log: Final = logging.getLogger("deadlined.http")

RecordT = TypeVar("RecordT")


def report(level: int, message: str, *args: object, error: BaseException | None = None) -> None:
    """Log `message % args`, with the traceback of `error`. A logging handler that raises is reported on stderr."""
    try:
        _log.log(level, message, *args, exc_info=error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # stderr may be closed, too: then the report is lost
        with contextlib.suppress(Exception):
            traceback.print_exc(file=sys.stderr)


def notify(observe: Callable[[RecordT], object], record: RecordT) -> None:
    """Call `observe(record)`. Log what it raises."""
    try:
        observe(record)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        report(logging.ERROR, "the observer failed at %r", record, error=failure)
