"""Log lines for machines: one JSON object each, which begins with the same fields in the same order.

They are `timestamp`, `level`, `logger`, `event`, `process`, and `worker` in a worker process. Then come the fields of
the event, and of an exception `error`, `file`, `line`, `function` (the innermost line of the application) and
`exception`, its traceback. A field of the application whose name is taken gets the name with `_` behind it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from json.encoder import encode_basestring_ascii as quoted
from pathlib import PurePath
from uuid import UUID

from ...http import ConnectionRecord, RequestRecord
from .entries import OURS, Entry, repr_of
from .greeting import Facts
from .severity import connection_failed, request_failed
from .tracebacks import full, message, place

# what is written as its text
_TEXTS = (PurePath, UUID, Decimal)

# levels of containers; deeper ones are written as their repr
_DEPTH = 20


class JsonLines:
    """A layout. `worker`: the number of this worker process, None without a supervisor. Make it in the process whose
    lines it lays out."""

    def __init__(self, worker: int | None = None) -> None:
        self._worker = worker
        which = "" if worker is None else f', "worker": {worker}'
        rest = f'"process": {os.getpid()}{which}, "peer": '
        request = f'"logger": "{OURS}.access", "event": "request", {rest}'
        connection = f'"logger": "{OURS}.access", "event": "connection", {rest}'
        # what follows the time
        self._request, self._failed_request = (f'Z", "level": "{level}", {request}' for level in ("info", "warning"))
        # by whether it has failed
        self._connection = [f'Z", "level": "{level}", {connection}' for level in ("info", "warning")]
        # the second that was written last, and its text: one object, because threads log as well
        self._stamp = (-1, "")

    def entry(self, entry: Entry) -> str:
        """Return the line of an entry. Whatever a field holds, it is valid JSON."""
        content: dict[str, object] = {
            "timestamp": f"{self._time(entry.at)}Z",
            "level": entry.level,
            "logger": entry.logger,
            "event": entry.event,
            "process": entry.process,
        }
        if self._worker is not None:
            content["worker"] = self._worker
        _add(content, entry.fields.items())
        if entry.error is not None:
            _add(content, _told(entry.error))
        return f"{_dumped(content)}\n"

    def greeting(self, _: Facts) -> str:
        """Return "": the line `listening` of each process has what a machine wants to know."""
        return ""

    def request(self, at: float, record: RequestRecord) -> str:
        """Return the line of a request."""
        begin, more = self._request, f', "reason": "{record.reason}"' if record.reason else ""
        # most requests need not be asked
        if (more or record.status >= 500) and request_failed(record):
            begin = self._failed_request
        if record.refused:
            more = f', "refused": "{record.refused}"{more}'
        if record.fields:
            more += f', "fields": {json.dumps(dict(record.fields))}'
        return (
            f'{{"timestamp": "{self._time(at)}{begin}{quoted(record.peer)}, '
            f'"method": {quoted(record.method)}, "path": {quoted(record.target)}, '
            f'"version": "{record.version}", "status": {record.status}, "received": {record.received}, '
            f'"sent": {record.sent}, "head": {record.head:.6f}, "handled": {record.handled:.6f}{more}}}\n'
        )

    def connection(self, at: float, record: ConnectionRecord) -> str:
        """Return the line of a connection."""
        return (
            f'{{"timestamp": "{self._time(at)}{self._connection[connection_failed(record)]}{quoted(record.peer)}, '
            f'"reason": "{record.reason}", "phase": "{record.phase}", '
            f'"elapsed": {record.elapsed:.6f}, "lateness": {record.lateness:.6f}, "requests": {record.requests}, '
            f'"received": {record.received}, "sent": {record.sent}}}\n'
        )

    def _time(self, at: float) -> str:
        """Return the time up to microseconds, without the zone. The seconds are made once for the lines of each."""
        micros = int(at * 1_000_000)
        second, text = self._stamp
        rest = micros - second * 1_000_000
        if not 0 <= rest < 1_000_000:
            second, rest = divmod(micros, 1_000_000)
            text = datetime.fromtimestamp(second, UTC).isoformat()[:-6]
            self._stamp = (second, text)
        return f"{text}.{rest:06d}"


def _add(content: dict[str, object], fields: Iterable[tuple[str, object]]) -> None:
    """Add fields, under another name where one is taken."""
    for given, value in fields:
        name = str(given)
        while name in content:
            name += "_"
        content[name] = value


def _told(error: BaseException) -> Iterable[tuple[str, object]]:
    said = message(error)
    yield "error", f"{type(error).__name__}: {said}" if said else type(error).__name__
    frame = place(error)
    if frame is not None:
        yield from (("file", frame.filename), ("line", frame.lineno), ("function", frame.name))
    yield "exception", full(error)


def _dumped(content: dict[str, object]) -> str:
    try:
        return json.dumps(content, default=_simple, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        # keys that are not text, numbers that JSON does not have, containers that contain themselves
        return json.dumps({name: _plain(value, _DEPTH) for name, value in content.items()}, allow_nan=False)


def _simple(value: object) -> object:
    """Return what JSON writes for an object that it does not know."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, _TEXTS):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    return repr_of(value)


def _plain(value: object, depth: int) -> object:
    """Return `value` as objects that JSON writes without fail."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, int):
        # Python refuses to write thousands of digits
        text = repr_of(value)
        return value if text.lstrip("-").isdigit() else text
    if not depth:
        return repr_of(value)
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else repr_of(key): _plain(each, depth - 1) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each, depth - 1) for each in value]
    simple = _simple(value)
    return simple if isinstance(simple, str) else _plain(simple, depth - 1)
