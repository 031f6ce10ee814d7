"""The log: one JSON object per line, whoever speaks."""

from __future__ import annotations

import datetime
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from deadlined.service.logs import Log, configure


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """The root logger belongs to the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Output:
    """A configured log and what was written to it."""

    def __init__(self, level: str = "info") -> None:
        self._stream = io.StringIO()
        self.log: Log = configure(level, self._stream)

    def lines(self) -> list[dict[str, Any]]:
        text = self._stream.getvalue()
        assert text.endswith("\n") or not text
        return [json.loads(line) for line in text.splitlines()]

    def line(self) -> dict[str, Any]:
        (line,) = self.lines()
        return line


def test_an_event_is_one_json_object_with_its_fields_and_the_time_in_utc() -> None:
    output = Output()
    output.log("listening", url="http://x", port=5)
    line = output.line()
    stamp = datetime.datetime.fromisoformat(line.pop("timestamp"))
    assert stamp.utcoffset() == datetime.timedelta(0)
    assert line == {"event": "listening", "url": "http://x", "port": 5}


def test_the_services_own_events_are_written_whatever_the_level() -> None:
    output = Output("critical")
    output.log("stopped")
    assert output.line()["event"] == "stopped"


def test_the_standard_librarys_logging_is_json_with_level_and_logger() -> None:
    output = Output()
    logging.getLogger("shop.web").warning("%d of %s", 3, "apples")
    line = output.line()
    assert (line["event"], line["level"], line["logger"]) == ("3 of apples", "warning", "shop.web")
    assert "timestamp" in line
    assert not {name for name in line if name.startswith("_")}


def test_a_record_below_the_level_is_not_written() -> None:
    output = Output("warning")
    logging.getLogger("shop").info("too quiet")
    assert output.lines() == []


def test_a_traceback_is_a_field_of_its_line() -> None:
    output = Output()
    try:
        raise LookupError("lost\nand found")
    except LookupError:
        logging.getLogger("shop").exception("it failed")
    line = output.line()
    assert line["event"] == "it failed"
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith("LookupError: lost\nand found")


def test_a_traceback_of_a_group_is_a_field_of_its_line() -> None:
    output = Output()
    group = ExceptionGroup("several", [LookupError("one"), ValueError("two")])
    logging.getLogger("shop").error("they failed", exc_info=group)
    assert all(word in output.line()["exception"] for word in ("several", "LookupError: one", "ValueError: two"))


def test_text_of_any_kind_stays_on_one_line() -> None:
    output = Output()
    nasty = 'two\nlines, "quotes", \N{SNOWMAN}, \0, \N{LINE SEPARATOR}'
    output.log("event", text=nasty)
    logging.getLogger("shop").error(nasty)
    first, second = output.lines()
    assert first["text"] == second["event"] == nasty


def test_configuring_again_writes_nothing_twice() -> None:
    Output()
    output = Output()
    logging.getLogger("shop").error("once")
    assert output.line()["event"] == "once"
