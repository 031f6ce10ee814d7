"""A log without the queries of URLs, in which applications pass tokens and what people search for.

The lines of the access log, and the lines of the server's loggers that name a request, lose them. What the application
logs itself, tracebacks included, is as it is.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace

from ...http import ConnectionRecord, RequestRecord
from .entries import Entry, Layout
from .greeting import Facts

# the loggers whose lines may begin with the line of a request
_LOGGERS = ("deadlined.http", "deadlined.asgi", "deadlined.proxy")

# a path or a URL in a header field, Referer for example
_URL = re.compile(r"((?:^/|://)[^\s?]*)\?\S*")

# method and target, as `Request.line` has them
_REQUEST_LINE = re.compile(r"(\S+ [^\s?]*)\?\S*")


class WithoutQueries:
    """A layout that leaves out the queries of requests, and of URLs in their header fields."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def entry(self, entry: Entry) -> str:
        """Lay out a line of the server or of the application."""
        return self._layout.entry(entry)

    def greeting(self, facts: Facts) -> str:
        """Lay out what is said once."""
        return self._layout.greeting(facts)

    def request(self, at: float, record: RequestRecord) -> str:
        """Lay out the line of a request."""
        fields = tuple((name, _URL.sub(r"\1", value)) for name, value in record.fields)
        return self._layout.request(at, replace(record, target=record.target.partition("?")[0], fields=fields))

    def connection(self, at: float, record: ConnectionRecord) -> str:
        """Lay out the line of a connection."""
        return self._layout.connection(at, record)


class _WithoutQueries(logging.Filter):
    """A filter of `logging` that keeps every record, without the query in its first argument."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and record.args and isinstance(record.args[0], str):
            line = _REQUEST_LINE.fullmatch(record.args[0])
            if line is not None:
                record.args = (line[1], *record.args[1:])
        return True


_FILTER = _WithoutQueries()


def leave_out_queries() -> None:
    """Let the server's loggers leave out the queries of requests. Filters of loggers hold whatever handlers an
    application installs."""
    for name in _LOGGERS:
        # one that is there already is not added
        logging.getLogger(name).addFilter(_FILTER)
