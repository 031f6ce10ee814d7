"""Log lines for people: time, level, and what happened, in columns and colours; tracebacks over several lines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

from ...http import ConnectionRecord, RequestRecord
from .entries import OURS, Entry, repr_of
from .greeting import Facts, screen
from .style import Style, harmless, value_text
from .text_access import connection_text, request_text
from .text_events import sentence
from .tracebacks import full

_LEVELS = {"debug": "dim", "info": "good", "warning": "warn", "error": "bad", "critical": "worst"}
_WIDEST = 8  # critical

_INDENT = "    "


class TextLines:
    """A layout. `worker`: the number of this worker process, None without a supervisor."""

    def __init__(self, style: Style, worker: int | None = None) -> None:
        self._style = style
        self._worker = "" if worker is None else f"  [{worker}]"
        # the second that was shown last, and its text: one object, because threads log as well
        self._stamp = (-1, "")

    def entry(self, entry: Entry) -> str:
        """Return the line of an entry. Its traceback and texts of several lines stand below it."""
        said = _said(entry) if entry.logger == OURS else None
        if said == "":
            return ""
        paint = self._style.paint
        level = paint(_LEVELS.get(entry.level, ""), f"{harmless(entry.level):<{_WIDEST}}")
        logger = "" if entry.logger == OURS else paint("note", f"{harmless(entry.logger)}: ")
        first, *more = (entry.event if said is None else said).split("\n")
        short, blocks = self._fields({} if said is not None else entry.fields)
        # a terminal has shown ^C at the beginning of the line
        begin = "\r" if self._style.terminal and entry.logger == OURS and entry.fields.get("signal") == "SIGINT" else ""
        line = f"{begin}{self._when(entry.at)}  {level}  {logger}{harmless(first)}{short}"
        lines = [line, *(f"{_INDENT}{harmless(each)}" for each in more), *blocks]
        if entry.error is not None:
            lines += _indented(self._style.traceback(full(entry.error)))
        return "\n".join(lines) + "\n"

    def greeting(self, facts: Facts) -> str:
        """Return the first screen."""
        return screen(facts, self._style)

    def request(self, at: float, record: RequestRecord) -> str:
        """Return the line of a request."""
        return f"{self._when(at)}  {request_text(record, self._style)}\n"

    def connection(self, at: float, record: ConnectionRecord) -> str:
        """Return the line of a connection that ended badly, "" for others."""
        text = connection_text(record, self._style)
        return f"{self._when(at)}  {text}\n" if text else ""

    def _when(self, at: float) -> str:
        """Return the local time, and which worker process it is."""
        second, rest = divmod(int(at * 1000), 1000)
        last, text = self._stamp
        if second != last:
            text = time.strftime("%H:%M:%S", time.localtime(second))
            self._stamp = (second, text)
        return self._style.paint("dim", f"{text}.{rest:03d}{self._worker}")

    def _fields(self, fields: Mapping[str, object]) -> tuple[str, list[str]]:
        """Return the short fields as one text, and the lines of the long ones."""
        short, blocks = "", []
        for name, value in fields.items():
            text = value if isinstance(value, str) else repr_of(value)
            label = self._style.paint("dim", f"{harmless(str(name))}=")
            if isinstance(value, str) and "\n" in text.strip():
                blocks += [f"{_INDENT}{label}", *_indented(self._style.traceback(text.strip("\n")))]
            else:
                short += f"  {label}{value_text(text) if isinstance(value, str) else harmless(text)}"
        return short, blocks


def _indented(text: str) -> list[str]:
    return [f"{_INDENT}{line}" for line in text.split("\n")]


def _said(entry: Entry) -> str | None:
    # an application may log by our name, with any fields
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        return sentence(entry.event, entry.fields)
    return None
