"""The access log: one JSON line per request and per connection, written after the response.

Facts      Making and writing a line takes as long as half of a small request.
Hazard     The client waits for the line about its own request. Each line costs a system call.
Answer     A record is kept with its time. Lines are made and written together: DELAY seconds after the first of them,
           as soon as there are MANY, and before the service writes a line of its own.
Cost       A process that is killed loses the lines of its last DELAY.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

from ..http import ConnectionRecord, RequestRecord

# seconds; a person who watches the log does not notice
DELAY = 0.05

# records; formatted in less than a millisecond
MANY = 256

Later = Callable[[float, Callable[[], object]], object]

_quoted = json.JSONEncoder().encode


class AccessLog:
    """An observer of the HTTP server. `later(seconds, function)` must call the function once, after `seconds`.

    Raises what writing to `stream` raises; a stream of `deadlined.service.output` raises nothing.
    """

    def __init__(self, stream: TextIO, later: Later) -> None:
        self._stream = stream
        self._later = later
        self._records: list[tuple[float, RequestRecord | ConnectionRecord]] = []

    def request(self, record: RequestRecord) -> None:
        """Keep the line of a request. It has a `reason` only if its connection ended with it."""
        self._keep(record)

    def connection(self, record: ConnectionRecord) -> None:
        """Keep the line of a connection that has ended."""
        self._keep(record)

    def flush(self) -> None:
        """Write the lines of all kept records."""
        records = self._records
        if records:
            self._records = []
            self._stream.write("".join(_line(at, record) for at, record in records))
            self._stream.flush()

    def _keep(self, record: RequestRecord | ConnectionRecord) -> None:
        records = self._records
        records.append((time.time(), record))
        if len(records) == 1:
            self._later(DELAY, self.flush)
        elif len(records) >= MANY:
            self.flush()


def _line(at: float, record: RequestRecord | ConnectionRecord) -> str:
    stamp = datetime.fromtimestamp(at, UTC).isoformat()
    fields = _request(record) if isinstance(record, RequestRecord) else _connection(record)
    return f'{{"timestamp": "{stamp}", "peer": {_quoted(record.peer)}, {fields}}}\n'


def _request(record: RequestRecord) -> str:
    reason = f', "reason": "{record.reason}"' if record.reason else ""
    return (
        f'"event": "request", "method": {_quoted(record.method)}, "path": {_quoted(record.target)}, '
        f'"version": "{record.version}", "status": {record.status}, "received": {record.received}, '
        f'"sent": {record.sent}, "head": {record.head:.6f}, "handled": {record.handled:.6f}{reason}'
    )


def _connection(record: ConnectionRecord) -> str:
    return (
        f'"event": "connection", "reason": "{record.reason}", "phase": "{record.phase}", '
        f'"elapsed": {record.elapsed:.6f}, "lateness": {record.lateness:.6f}, "requests": {record.requests}, '
        f'"received": {record.received}, "sent": {record.sent}'
    )
