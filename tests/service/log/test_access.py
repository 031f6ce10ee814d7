"""The access log: a line per request and connection, in their order, soon; as JSON lines of one form."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deadlined.http import ConnectionRecord, Phase, Reason, Refusal, RequestRecord
from deadlined.service.log.access import DELAY, MANY, AccessLog, FailureLog
from deadlined.service.log.entries import Layout
from deadlined.service.log.json_lines import JsonLines
from deadlined.service.log.style import Style
from deadlined.service.log.text_lines import TextLines

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


# in every line
SAME = {"logger": "deadlined.access"}


class Output:
    """An access log, what it has written, and what it wants to be called later."""

    def __init__(self, layout: Layout | None = None, kind: type[AccessLog] = AccessLog) -> None:
        self.stream = io.StringIO()
        self.wanted: list[tuple[float, Callable[[], object]]] = []
        self.log = kind(self.stream, self._later, layout or JsonLines())

    def _later(self, seconds: float, function: Callable[[], object]) -> None:
        self.wanted.append((seconds, function))

    def lines(self) -> list[dict[str, Any]]:
        text = self.stream.getvalue()
        assert text.endswith("\n") or not text
        return [json.loads(line) for line in text.splitlines()]


def changed(**changes: Any) -> RequestRecord:
    return dataclasses.replace(REQUEST, **changes)


def line_of(record: RequestRecord | ConnectionRecord) -> dict[str, Any]:
    """Its line, without the time."""
    output = Output()
    (output.log.request if isinstance(record, RequestRecord) else output.log.connection)(record)  # type: ignore[arg-type]
    output.log.flush()
    (line,) = output.lines()
    del line["timestamp"]
    return line


def test_a_request_is_a_line() -> None:
    assert line_of(REQUEST) == SAME | {
        "process": os.getpid(),
        "level": "info",
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


@pytest.mark.parametrize("value", ["curl/8", "", 'a"b', "\\", "\n", "\x85", '"}\n{"event": "x'])
def test_header_fields_are_an_object_whatever_is_in_them(value: str) -> None:
    line = line_of(changed(reason=Reason.DONE, fields=(("user-agent", value), ("status", "5"))))
    assert (line["status"], line["fields"]) == (200, {"user-agent": value, "status": "5"})
    assert "fields" not in line_of(REQUEST)


def test_a_request_that_got_no_turn_says_why() -> None:
    assert line_of(changed(status=503, refused=Refusal.QUEUE_TIMEOUT))["refused"] == "queue_timeout"
    assert "refused" not in line_of(REQUEST)


def test_a_connection_is_a_line() -> None:
    assert line_of(CONNECTION) == SAME | {
        "process": os.getpid(),
        "level": "warning",
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


@pytest.mark.parametrize("worker", [None, 3])
def test_the_fields_are_in_one_order_whatever_the_line(worker: int | None) -> None:
    output = Output(JsonLines(worker))
    output.log.request(REQUEST)
    output.log.connection(CONNECTION)
    output.log.flush()
    first = ["timestamp", "level", "logger", "event", "process", *(["worker"] if worker else []), "peer"]
    for line in output.lines():
        assert list(line)[: len(first)] == first
        assert line.get("worker") == worker


@pytest.mark.parametrize("at", [0.0, 1.0, 1.9999999, 1700000000.25, 1700000000.0000005, 1.0, 4102444799.999999])
def test_a_time_has_microseconds_whatever_it_is(at: float) -> None:
    line = json.loads(JsonLines().request(at, REQUEST))
    assert len(line["timestamp"]) == len("2026-01-01T00:00:00.000000Z")
    stamp = datetime.datetime.fromisoformat(line["timestamp"])
    assert abs(stamp.timestamp() - at) <= 2e-6


def test_times_of_several_seconds_do_not_mix() -> None:
    layout = JsonLines()
    stamps = [json.loads(layout.request(at, REQUEST))["timestamp"][-10:] for at in (5.0, 5.5, 6.25, 5.75)]
    assert stamps == ["05.000000Z", "05.500000Z", "06.250000Z", "05.750000Z"]


def test_a_layout_that_shows_nothing_writes_nothing() -> None:
    output = Output(TextLines(Style(colour=False)))
    output.log.connection(dataclasses.replace(CONNECTION, reason=Reason.DONE))
    output.log.flush()
    assert output.stream.getvalue() == ""


@pytest.mark.parametrize("text", ['"', "\\", "\n", "\0", "\N{SNOWMAN}", "\N{LINE SEPARATOR}", '"}\n{"event": "x'])
def test_nothing_that_a_client_sends_can_make_a_line_of_its_own(text: str) -> None:
    line = line_of(changed(target=text, method=text, peer=text))
    assert (line["path"], line["method"], line["peer"]) == (text, text, text)


def test_the_document_names_every_field_in_its_order() -> None:
    document = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    first = re.findall(r"^\| `(\w+)` \|", document[document.index("| field |") :], re.MULTILINE)[:6]
    request = changed(reason=Reason.DONE, refused=Refusal.QUEUE_FULL, fields=(("referer", "x"),))
    for record in (request, CONNECTION):
        line = json.loads(lines_of(record))
        (row,) = re.findall(rf"^\| `{line['event']}` \| (.*) \|$", document, re.MULTILINE)
        assert list(line) == [*first, *re.findall(r"`(\w+)`", row)]


def lines_of(record: RequestRecord | ConnectionRecord) -> str:
    layout = JsonLines(worker=1)
    return layout.request(0.0, record) if isinstance(record, RequestRecord) else layout.connection(0.0, record)


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


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, "info"),
        ({"status": 404}, "info"),
        ({"status": 400, "reason": Reason.PROTOCOL_ERROR}, "info"),
        ({"status": 0, "reason": Reason.CLIENT_CLOSED}, "info"),
        ({"reason": Reason.DONE}, "info"),
        ({"status": 500}, "warning"),
        ({"status": 503}, "warning"),
        ({"status": 408, "reason": Reason.BODY_RATE}, "warning"),
        ({"reason": Reason.WRITE_TIMEOUT}, "warning"),
        ({"reason": Reason.SERVER_ERROR}, "warning"),
        ({"reason": Reason.UPSTREAM_FAILED}, "warning"),
        ({"status": 101, "reason": Reason.PONG_TIMEOUT}, "warning"),
    ],
)
def test_a_request_that_failed_here_or_was_cut_is_a_warning(changes: dict[str, Any], level: str) -> None:
    assert line_of(changed(**changes))["level"] == level
    assert written_by_failure_log(changed(**changes)) == (level == "warning")


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, "warning"),
        ({"requests": 3}, "warning"),
        ({"reason": Reason.HANDSHAKE_TIMEOUT, "phase": Phase.HANDSHAKE}, "warning"),
        # of another protocol, which has no requests
        ({"reason": Reason.WRITE_TIMEOUT, "phase": Phase.WRITE}, "warning"),
        # a browser that connects in advance
        ({"received": 0}, "info"),
        ({"reason": Reason.READ_TIMEOUT, "received": 0}, "info"),
        ({"reason": Reason.HANDSHAKE_TIMEOUT, "phase": Phase.HANDSHAKE, "received": 0}, "info"),
        # the line of its request says so
        ({"reason": Reason.HANDLER_TIMEOUT, "phase": Phase.HANDLER, "requests": 1}, "info"),
        ({"reason": Reason.PROTOCOL_ERROR}, "info"),
        ({"reason": Reason.IDLE_TIMEOUT, "phase": Phase.IDLE, "requests": 1}, "info"),
        ({"reason": Reason.CLIENT_RESET, "phase": Phase.IDLE}, "info"),
        ({"reason": Reason.DONE}, "info"),
    ],
)
def test_a_connection_that_was_cut_is_a_warning_once(changes: dict[str, Any], level: str) -> None:
    record = dataclasses.replace(CONNECTION, **changes)
    assert line_of(record)["level"] == level
    assert written_by_failure_log(record) == (level == "warning")


def written_by_failure_log(record: RequestRecord | ConnectionRecord) -> bool:
    output = Output(kind=FailureLog)
    (output.log.request if isinstance(record, RequestRecord) else output.log.connection)(record)  # type: ignore[arg-type]
    output.log.flush()
    return output.stream.getvalue() != ""
