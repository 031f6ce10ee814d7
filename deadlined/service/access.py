"""The access log: a JSON line per request and per connection, written off the path of the request.

Facts      Making and writing a line takes as long as half of a small request.
Hazard     A client waits for the line about it; a system call per line; lines of two processes that share a pipe are
           mixed where a write is longer than what the kernel takes as one.
Answer     A record is kept with its time. Lines are made and written together, DELAY after the first of them, when MANY
           have come together, and before the service says anything itself; whole lines, and no more than PIPE_BUF bytes
           in one write (POSIX: those are not mixed).
Cost       A process that is killed outright loses the lines of its last DELAY. A line that is longer than PIPE_BUF by
           itself can still be mixed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from select import PIPE_BUF
from typing import TextIO

from ..http import ConnectionRecord, RequestRecord

# seconds; what a person who watches the log does not notice
DELAY = 0.05

# records; what is formatted in less than a millisecond
MANY = 256

Later = Callable[[float, Callable[[], object]], object]

_quoted = json.JSONEncoder().encode


class AccessLog:
    """An observer of the HTTP server. `later(seconds, function)` calls the function then."""

    def __init__(self, stream: TextIO, later: Later) -> None:
        self._stream = stream
        self._later = later
        self._requests: list[tuple[float, RequestRecord | ConnectionRecord]] = []

    def request(self, record: RequestRecord) -> None:
        """The request's line; `reason` only if its connection ended with it."""
        self._keep(record)

    def connection(self, record: ConnectionRecord) -> None:
        """The connection's line."""
        self._keep(record)

    def flush(self) -> None:
        """Write what has come together."""
        kept = self._requests
        if kept:
            self._requests = []
            for piece in _pieces(_line(at, record) for at, record in kept):
                self._stream.write(piece)
                self._stream.flush()

    def _keep(self, record: RequestRecord | ConnectionRecord) -> None:
        kept = self._requests
        kept.append((time.time(), record))
        if len(kept) == 1:
            self._later(DELAY, self.flush)
        elif len(kept) >= MANY:
            self.flush()


def _pieces(lines: Iterable[str]) -> Iterator[str]:
    """Lines together, as many as fit. They are ASCII: a character is a byte."""
    piece: list[str] = []
    size = 0
    for line in lines:
        if piece and size + len(line) > PIPE_BUF:
            yield "".join(piece)
            piece = []
            size = 0
        piece.append(line)
        size += len(line)
    yield "".join(piece)


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
