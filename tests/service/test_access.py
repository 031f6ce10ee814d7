"""The access log: one JSON line per request and connection, in their order, soon."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from deadlined.http import ConnectionRecord, Phase, Reason, RequestRecord
from deadlined.service.access import DELAY, MANY, AccessLog

REQUEST = RequestRecord(
    peer="127.0.0.1:5000",
    method="GET",
    target="/a?b",
    version="1.1",
    status=200,
    received=10,
    sent=20,
    head=0.00000149,
    handled=1.5,
    reason=None,
)
CONNECTION = ConnectionRecord(
    peer="127.0.0.1:5000",
    reason=Reason.HEADER_TIMEOUT,
    phase=Phase.HEADER,
    elapsed=10.00000049,
    lateness=0.0003,
    requests=0,
    received=3,
    sent=7,
)


class Output:
    """An access log, what it has written, and what it wants to be called later."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.wanted: list[tuple[float, Callable[[], object]]] = []
        self.log = AccessLog(self.stream, lambda seconds, function: self.wanted.append((seconds, function)))

    def lines(self) -> list[dict[str, Any]]:
        text = self.stream.getvalue()
        assert text.endswith("\n") or not text
        return [json.loads(line) for line in text.splitlines()]


def changed(**changes: Any) -> RequestRecord:
    return RequestRecord(
        **{field.name: getattr(REQUEST, field.name) for field in dataclasses.fields(REQUEST)} | changes
    )


def line_of(record: RequestRecord | ConnectionRecord) -> dict[str, Any]:
    """Its line, without the time."""
    output = Output()
    (output.log.request if isinstance(record, RequestRecord) else output.log.connection)(record)  # type: ignore[arg-type]
    output.log.flush()
    (line,) = output.lines()
    del line["timestamp"]
    return line


def test_a_request_is_a_line() -> None:
    assert line_of(REQUEST) == {
        "event": "request",
        "peer": "127.0.0.1:5000",
        "method": "GET",
        "path": "/a?b",
        "version": "1.1",
        "status": 200,
        "received": 10,
        "sent": 20,
        "head": 0.000001,
        "handled": 1.5,
    }


def test_a_request_that_ended_its_connection_says_why() -> None:
    assert line_of(changed(reason=Reason.DONE))["reason"] == "done"


def test_a_connection_is_a_line() -> None:
    assert line_of(CONNECTION) == {
        "event": "connection",
        "peer": "127.0.0.1:5000",
        "reason": "header_timeout",
        "phase": "header",
        "elapsed": 10.0,
        "lateness": 0.0003,
        "requests": 0,
        "received": 3,
        "sent": 7,
    }


def test_a_line_says_when_in_utc() -> None:
    before = time.time()
    output = Output()
    output.log.request(REQUEST)
    output.log.flush()
    stamp = datetime.datetime.fromisoformat(output.lines()[0]["timestamp"])
    assert stamp.utcoffset() == datetime.timedelta(0)
    assert before - 1e-6 <= stamp.timestamp() <= time.time()


@pytest.mark.parametrize("text", ['"', "\\", "\n", "\0", "\N{SNOWMAN}", "\N{LINE SEPARATOR}", '"}\n{"event": "x'])
def test_nothing_that_a_client_sends_can_make_a_line_of_its_own(text: str) -> None:
    line = line_of(changed(target=text, method=text, peer=text))
    assert (line["path"], line["method"], line["peer"]) == (text, text, text)


def test_lines_wait_for_each_other_and_are_written_together_in_their_order() -> None:
    output = Output()
    for number in range(3):
        output.log.request(changed(status=200 + number))
    output.log.connection(CONNECTION)
    assert output.lines() == []
    ((delay, flush),) = output.wanted
    assert delay == DELAY
    flush()
    assert [line.get("status") for line in output.lines()] == [200, 201, 202, None]


def test_many_lines_are_written_at_once_and_none_twice() -> None:
    output = Output()
    for _ in range(MANY):
        output.log.request(REQUEST)
    assert len(output.lines()) == MANY
    output.wanted[0][1]()
    assert len(output.lines()) == MANY


def test_the_next_line_after_a_flush_is_written_in_its_turn() -> None:
    output = Output()
    output.log.request(REQUEST)
    output.log.flush()
    output.log.request(REQUEST)
    assert len(output.wanted) == 2
