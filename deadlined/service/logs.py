"""Logs: one JSON object per line on stdout, the server's and the application's alike."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, TextIO

import structlog

Log = Callable[..., object]

_STAMP = structlog.processors.TimeStamper(fmt="iso", utc=True)


def configure(level: str, stream: TextIO | None = None) -> Log:
    """Send the standard library's logging, from `level` on, to `stream` (stdout) as JSON lines; return the service's
    own log.

    That is called as `log(event, **fields)`, and writes whatever the level.
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
