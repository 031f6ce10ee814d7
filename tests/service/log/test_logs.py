"""The log: one JSON object per line, whoever speaks; or text for people."""

from __future__ import annotations

import ast
import datetime
import io
import json
import logging
import logging.config
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined.service.content.hints import LoopHint
from deadlined.service.log.entries import Layout
from deadlined.service.log.json_lines import JsonLines
from deadlined.service.log.logs import Log, choose_layout, configure, enable_loggers
from deadlined.service.log.text_lines import TextLines

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """The root logger belongs to the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def events() -> Iterator[tuple[str, set[str]]]:
    """Yield each event that the server names itself, with the fields that are always given."""
    for path in (ROOT / "deadlined" / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="log") | ast.Attribute(attr="_log"), args=[ast.Constant(value=str(event))]
                ):
                    yield event, {word.arg for word in node.keywords if word.arg} - {"level"}


def test_the_document_names_every_event_with_its_fields() -> None:
    document = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", document[: document.index("## Choosing lines")], re.MULTILINE)
    named = {
        event: set(re.findall(r"`(\w+)`", fields)) for names, fields in rows for event in names[1:-1].split("`, `")
    }
    assert [(event, fields) for event, fields in events() if event not in named or not fields <= named[event]] == []


class Output:
    """A configured log and what was written to it."""

    def __init__(self, level: str = "info", layout: Layout | None = None) -> None:
        self._stream = io.StringIO()
        self.log: Log = configure(level, self._stream, layout)

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
    assert line == {
        "level": "info",
        "logger": "deadlined",
        "event": "listening",
        "process": os.getpid(),
        "url": "http://x",
        "port": 5,
    }


@pytest.mark.parametrize(
    ("lowest", "written"),
    [
        ("debug", ["info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
        ("critical", []),
    ],
)
def test_the_services_own_events_are_written_from_the_level_on(lowest: str, written: list[str]) -> None:
    output = Output(lowest)
    output.log("stopped")
    output.log("late", level="warning")
    output.log("failed", level="error")
    assert [line["level"] for line in output.lines()] == written


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


def test_the_servers_own_loggers_outlive_an_applications_configuration(caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = logging.getLogger("deadlined.http"), logging.getLogger("deadlinedlike")
    try:
        logging.config.dictConfig({"version": 1})
        assert (ours.disabled, theirs.disabled) == (True, True)
        enable_loggers()
        assert (ours.disabled, theirs.disabled) == (False, True)
    finally:
        for logger in list(logging.root.manager.loggerDict.values()):
            if isinstance(logger, logging.Logger):
                logger.disabled = False


def nowhere(event: str, level: str = "info", **fields: object) -> None:
    """A log that nobody reads."""


@pytest.mark.parametrize(
    "left", [[], [logging.NullHandler()], [LoopHint("trio", nowhere)]], ids=["none", "null", "search"]
)
def test_the_servers_own_records_are_written_if_no_handler_of_the_root_writes(left: list[logging.Handler]) -> None:
    Output()
    output = Output()
    logging.getLogger().handlers[:] = left
    logging.getLogger("shop").error("unheard")
    logging.getLogger("deadlined.http").error("GET / failed")
    assert output.line()["event"] == "GET / failed"


def test_the_servers_own_records_are_the_applications_if_it_has_a_handler() -> None:
    output = Output()
    theirs = io.StringIO()
    logging.getLogger().handlers[:] = [logging.StreamHandler(theirs)]
    logging.getLogger("deadlined.http").error("GET / failed")
    assert (theirs.getvalue(), output.lines()) == ("GET / failed\n", [])


@pytest.mark.parametrize("name", ["deadlined", "deadlined.http"])
def test_the_servers_own_records_are_written_once_if_one_of_its_loggers_has_a_handler(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    output = Output()
    theirs = io.StringIO()
    logging.getLogger().handlers[:] = []
    logger = logging.getLogger(name)
    monkeypatch.setattr(logger, "handlers", [*logger.handlers, logging.StreamHandler(theirs)])
    logging.getLogger("deadlined.http").error("GET / failed")
    assert (theirs.getvalue(), output.lines()) == ("GET / failed\n", [])


def test_the_fields_begin_in_one_order_whoever_speaks() -> None:
    output = Output(layout=JsonLines(worker=3))
    output.log("listening", url="http://x")
    logging.getLogger("shop").info("sold", extra={"apples": 3})
    for line in output.lines():
        assert list(line)[:6] == ["timestamp", "level", "logger", "event", "process", "worker"]
        assert (line["process"], line["worker"]) == (os.getpid(), 3)
        assert line["timestamp"].endswith("Z")
        assert len(line["timestamp"]) == len("2026-01-01T00:00:00.000000Z")


def test_the_level_of_an_event_is_a_field() -> None:
    output = Output()
    output.log("it is late", level="warning", seconds=3)
    line = output.line()
    assert (line["level"], line["seconds"]) == ("warning", 3)


def test_extra_fields_are_kept_also_where_their_names_are_taken() -> None:
    output = Output()
    extra = {"user": 5, "level": "VIP", "event": "concert", "timestamp": 0, "logger": "lumberjack", "worker": "bee"}
    logging.getLogger("shop").warning("sold", extra=extra)
    line = output.line()
    assert (line["event"], line["level"], line["logger"]) == ("sold", "warning", "shop")
    kept = {name: line[name] for name in ("user", "level_", "event_", "timestamp_", "logger_", "worker")}
    assert kept == {name + ("_" if name + "_" in kept else ""): value for name, value in extra.items()}


def test_an_exception_is_told_in_fields_with_the_line_of_the_application() -> None:
    output = Output()
    try:
        json.loads("{")
    except ValueError:
        logging.getLogger("shop").exception("it failed", extra={"error": "mine"})
    line = output.line()
    assert line["error"] == "mine"
    assert line["error_"].startswith("JSONDecodeError: Expecting property name")
    assert (line["file"], line["function"]) == (
        __file__,
        test_an_exception_is_told_in_fields_with_the_line_of_the_application.__name__,
    )
    assert list(line)[-1] == "exception"


def test_an_exception_outside_of_a_handler_is_none() -> None:
    output = Output()
    logging.getLogger("shop").exception("nothing failed")
    assert "exception" not in output.line()


class Broken:
    """An object that cannot be shown."""

    def __repr__(self) -> str:
        raise LookupError("no words")


def endless() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


NOT_JSON = {
    "a path": (Path("/a"), "/a"),
    "a uuid": (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "a date": (datetime.date(2026, 1, 2), "2026-01-02"),
    "bytes": (b"a", "b'a'"),
    "a set": ({1}, [1]),
    "not a number": (float("nan"), "nan"),
    "infinity in a list": ([1.5, float("-inf"), True, None], [1.5, "-inf", True, None]),
    "keys that are no text": ({(1, 2): {3: 4}}, {"(1, 2)": {"3": 4}}),
    "a broken object": (Broken(), "<Broken whose repr raises LookupError>"),
    "a broken key": ({Broken(): 1}, {"<Broken whose repr raises LookupError>": 1}),
    "a number of many digits": (10**5000, "<int whose repr raises ValueError>"),
}


@pytest.mark.parametrize(("value", "shown"), NOT_JSON.values(), ids=NOT_JSON)
def test_what_json_does_not_know_is_written_as_it_can_be(value: object, shown: object) -> None:
    output = Output()
    output.log("event", value=value)
    logging.getLogger("shop").info("event", extra={"value": value})
    assert [line["value"] for line in output.lines()] == [shown, shown]


def test_a_list_that_contains_itself_is_written_to_some_depth() -> None:
    output = Output()
    output.log("event", value=endless(), other=1)
    line = output.line()
    assert "[...]" in json.dumps(line["value"])
    assert line["other"] == 1


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


@pytest.mark.parametrize("kind", ["json", "text"])
def test_an_exception_that_cannot_be_shown_keeps_its_line(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    configure("info", stream, choose_layout(kind, stream))
    logging.getLogger("shop").error("it failed", exc_info=SpeechlessError())
    assert "it failed" in stream.getvalue()
    assert "SpeechlessError" in stream.getvalue()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["json", "text"])
def test_a_message_that_does_not_fit_its_arguments_is_not_lost(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    configure("info", stream, choose_layout(kind, stream))
    logging.getLogger("shop").warning("%d apples", "three")
    assert "%d apples" in stream.getvalue()
    assert "three" in stream.getvalue()
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("name", "stream", "text"),
    [
        ("auto", Terminal(), True),
        ("auto", io.StringIO(), False),
        ("text", io.StringIO(), True),
        ("json", Terminal(), False),
    ],
)
def test_text_is_for_terminals_unless_a_format_is_chosen(name: str, stream: io.StringIO, text: bool) -> None:
    assert isinstance(choose_layout(name, stream), TextLines if text else JsonLines)
