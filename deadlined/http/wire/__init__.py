"""HTTP/1.1 as bytes: reading requests and writing responses, without I/O."""

from __future__ import annotations

from .chunks import LAST_CHUNK, chunk
from .head import HeadParser, Request
from .parsers import PARSERS, head_parser
from .request import RequestParser
from .request_writer import field_lines, request_head
from .response import CONTINUE, Headers, ResponseWriter, canned, date_line, problem
from .response_head import Response
from .response_reader import ResponseReader

__all__ = [
    "CONTINUE",
    "LAST_CHUNK",
    "PARSERS",
    "HeadParser",
    "Headers",
    "Request",
    "RequestParser",
    "Response",
    "ResponseReader",
    "ResponseWriter",
    "canned",
    "chunk",
    "date_line",
    "field_lines",
    "head_parser",
    "problem",
    "request_head",
]
