"""The log of a process: the server's own events and the application's records of `logging`, in one stream and layout.

No library lays out the lines: structlog loads rich and asyncio wherever they are installed, which took a sixth of the
time in which the command starts.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TextIO

from .entries import Layout, entry_of, own_entry
from .json_lines import JsonLines
from .output import count_losses_anew
from .style import Style, wants_colour
from .text_lines import TextLines

# `log(event, level="info", **fields)`
Log = Callable[..., object]

# of --log-format
FORMATS = ("auto", "text", "json")

# of --access-log-lines
ACCESS_LOG_LINES = ("all", "errors")

# of --log-level, the lowest first
LEVELS = ("debug", "info", "warning", "error", "critical")


def reaches(level: str, lowest: str) -> bool:
    """Return True if lines of `level` are written where `lowest` is the lowest level of the log."""
    return LEVELS.index(level) >= LEVELS.index(lowest)


def choose_layout(name: str, stream: TextIO, worker: int | None = None) -> Layout:
    """Return the layout of FORMATS that is wanted for `stream`. `auto` is text on a terminal, and JSON elsewhere.

    `worker`: the number of this worker process, None without a supervisor.
    """
    if name == "text" or (name == "auto" and stream.isatty()):
        return TextLines(Style(wants_colour(stream), stream.isatty()), worker)
    return JsonLines(worker)


def open_log(name: str, level: str, out: TextIO, worker: int | None = None) -> tuple[Layout, Log]:
    """Configure the log of this process on `out`, a stream of `guard_standard_streams`: the layout as `choose_layout`
    says, `level` as in `configure`. Lines that `out` and `sys.stdout` lose are reported in this layout, whatever the
    level: they may have been errors."""
    layout = choose_layout(name, out, worker)

    def notice(lost: int, why: str) -> bytes:
        return layout.entry(own_entry("log lines lost", {"lost": lost, "why": why}, "warning")).encode()

    for stream in (sys.stdout, out):
        count_losses_anew(stream, notice)
    return layout, configure(level, out, layout)


def configure(level: str, stream: TextIO | None = None, layout: Layout | None = None) -> Log:
    """Write the standard library's log records from `level` on to `stream` (default: stdout), laid out by `layout`
    (default: JSON lines), and return the service's own log, of one of LEVELS.

    `log(event, **fields)` writes one line, if its own level is not below `level`: "info", or the field `level`.
    """
    out = sys.stdout if stream is None else stream
    lines = JsonLines() if layout is None else layout
    handler = logging.StreamHandler(out)
    handler.terminator = ""
    handler.setFormatter(_Formatter(lines))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    ours = logging.getLogger("deadlined")
    ours.handlers[:] = [*(each for each in ours.handlers if not isinstance(each, _Spare)), _Spare(handler)]
    lowest = level

    def log(event: str, /, level: str = "info", **fields: object) -> None:
        if reaches(level, lowest):
            out.write(lines.entry(own_entry(event, fields, level)))
            out.flush()

    return log


def enable_loggers() -> None:
    """Enable the server's own loggers. `logging.config` disables all that exist, unless it is told not to."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "deadlined" and isinstance(logger, logging.Logger):
            logger.disabled = False


class Onlooker(logging.Handler):
    """A handler that sees records, and writes none."""


class _Spare(logging.Handler):
    """Writes the server's own records where no handler of the application's does, neither on the root logger nor on
    theirs: nothing else tells of a failed request."""

    def __init__(self, handler: logging.Handler) -> None:
        super().__init__()
        self._handler = handler

    def emit(self, record: logging.LogRecord) -> None:
        if not _is_written(record):
            self._handler.handle(record)


# handlers beside which a record may be written nowhere
_SILENT = (Onlooker, logging.NullHandler, _Spare)


def _is_written(record: logging.LogRecord) -> bool:
    """Return True if a handler that writes is on the logger of `record`, or on one above it."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if not all(isinstance(each, _SILENT) for each in logger.handlers):
            return True
        logger = logger.parent
    return False


class _Formatter(logging.Formatter):
    """A formatter of `logging` that gives whole lines."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self._layout = layout

    def format(self, record: logging.LogRecord) -> str:
        return self._layout.entry(entry_of(record))
