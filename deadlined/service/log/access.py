"""The access log: lines for requests and connections, written after the response.

Facts      Making and writing a line takes as long as half of a small request.
Hazard     The client waits for the line about its own request. Each line costs a system call.
Answer     A record is kept with its time. Lines are made and written together: DELAY seconds after the first of them,
           as soon as there are MANY, and before the service writes a line of its own.
Cost       A process that is killed loses the lines of its last DELAY.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from ...http import ConnectionRecord, RequestRecord
from .entries import Layout
from .severity import connection_failed, request_failed

# seconds; a person who watches the log does not notice
DELAY = 0.05

# records; formatted in less than a millisecond
MANY = 256

Later = Callable[[float, Callable[[], object]], object]


class AccessLog:
    """An observer of the HTTP server. `later(seconds, function)` must call the function once, after `seconds`.

    Raises what writing to `stream` raises; a stream of `deadlined.service.log.output` raises nothing.
    """

    def __init__(self, stream: TextIO, later: Later, layout: Layout) -> None:
        self._stream = stream
        self._later = later
        self._layout = layout
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
            text = "".join(self._line(at, record) for at, record in records)
            if text:
                self._stream.write(text)
                self._stream.flush()

    def _line(self, at: float, record: RequestRecord | ConnectionRecord) -> str:
        if isinstance(record, RequestRecord):
            return self._layout.request(at, record)
        return self._layout.connection(at, record)

    def _keep(self, record: RequestRecord | ConnectionRecord) -> None:
        records = self._records
        records.append((time.time(), record))
        if len(records) == 1:
            self._later(DELAY, self.flush)
        elif len(records) >= MANY:
            self.flush()


class FailureLog(AccessLog):
    """An access log of what has failed or was cut."""

    def request(self, record: RequestRecord) -> None:
        """Keep the line of a request that has failed."""
        if request_failed(record):
            self._keep(record)

    def connection(self, record: ConnectionRecord) -> None:
        """Keep the line of a connection that has failed, and of which no line of a request says so."""
        if connection_failed(record):
            self._keep(record)
