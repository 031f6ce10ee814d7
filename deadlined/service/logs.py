"""Logs: one JSON object per line on stdout, the server's and the application's alike."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, TextIO

import structlog

from ..http import ConnectionRecord, RequestRecord

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


class AccessLog:
    """An observer of the HTTP server that writes a line per request and a line per connection."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def request(self, record: RequestRecord) -> None:
        """The request's line; `reason` only if its connection ended with it."""
        fields = {"reason": record.reason} if record.reason else {}
        self._log(
            "request",
            peer=record.peer,
            method=record.method,
            path=record.target,
            version=record.version,
            status=record.status,
            received=record.received,
            sent=record.sent,
            head=round(record.head, 6),
            handled=round(record.handled, 6),
            **fields,
        )

    def connection(self, record: ConnectionRecord) -> None:
        """The connection's line."""
        self._log(
            "connection",
            peer=record.peer,
            reason=record.reason,
            phase=record.phase,
            elapsed=round(record.elapsed, 6),
            lateness=round(record.lateness, 6),
            requests=record.requests,
            received=record.received,
            sent=record.sent,
        )
