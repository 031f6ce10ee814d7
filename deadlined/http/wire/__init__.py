"""HTTP/1.1 as bytes: reading requests and writing responses, without I/O."""

from __future__ import annotations

from .head import HeadParser, Request
from .parsers import PARSERS, head_parser
from .request import RequestParser
from .response import CONTINUE, Headers, ResponseWriter, canned, date_line

__all__ = [
    "CONTINUE",
    "PARSERS",
    "HeadParser",
    "Headers",
    "Request",
    "RequestParser",
    "ResponseWriter",
    "canned",
    "date_line",
    "head_parser",
]
