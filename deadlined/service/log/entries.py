"""What a line of the log says, before it is laid out: the server's own events and the records of `logging`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ...http import ConnectionRecord, RequestRecord
from .greeting import Facts

# the logger of the server's own events
OURS = "deadlined"

# what every record of `logging` has; the rest was given as `extra`
_OF_EVERY_RECORD = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName", "color_message"}
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log. `at`: seconds since the epoch. `fields` come in their order. `error`: the exception that is
    reported, None if none is."""

    at: float
    level: str
    logger: str
    event: str
    process: int
    fields: Mapping[str, object]
    error: BaseException | None = None


class Layout(Protocol):
    """How lines look. Each function returns whole lines with their ends, or "" where nothing is shown; none raises."""

    def entry(self, entry: Entry) -> str:
        """Lay out a line of the server or of the application."""

    def greeting(self, facts: Facts) -> str:
        """Lay out what is said once, when the first process serves."""

    def request(self, at: float, record: RequestRecord) -> str:
        """Lay out the line of a request that was over `at` seconds since the epoch."""

    def connection(self, at: float, record: ConnectionRecord) -> str:
        """Lay out the line of a connection that was over at `at`."""


def own_entry(event: str, fields: Mapping[str, object], level: str) -> Entry:
    """Make the entry of an event of the server's own that happens now."""
    return Entry(time.time(), level, OURS, event, os.getpid(), fields)


def entry_of(record: logging.LogRecord) -> Entry:
    """Make the entry of a record of `logging`. Raises nothing: a message that does not fit its arguments is kept as it
    is, with the arguments and the error."""
    fields = {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
    try:
        event = record.getMessage()
    except Exception as error:
        event = str(record.msg)
        fields |= {"arguments": repr_of(record.args), "not_formatted": f"{type(error).__name__}: {error}"}
    if record.stack_info:
        fields["stack"] = record.stack_info
    raised = record.exc_info[1] if record.exc_info else None
    process = record.process or os.getpid()
    return Entry(record.created, record.levelname.lower(), record.name, event, process, fields, raised)


def repr_of(value: object) -> str:
    """Return `repr(value)`, also of an object whose `__repr__` fails."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
