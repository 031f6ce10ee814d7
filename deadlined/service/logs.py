"""The log: one JSON object per line on stdout, for the server and the application."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, TextIO

import structlog

Log = Callable[..., object]

_STAMP = structlog.processors.TimeStamper(fmt="iso", utc=True)


def configure(level: str, stream: TextIO | None = None) -> Log:
    """Write the standard library's log records from `level` on to `stream` (default: stdout) as JSON lines, and return
    the service's own log.

    `log(event, **fields)` writes one line, whatever the level.
    """
    out = sys.stdout if stream is None else stream
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, _STAMP],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logger: Any = structlog.wrap_logger(
        structlog.WriteLogger(out),
        processors=[_STAMP, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.BoundLogger,
    )
    return logger.msg  # type: ignore[no-any-return]
