"""The choice of the parser that reads the heads of requests."""

from __future__ import annotations

from importlib.util import find_spec

from .head import HeadParser
from .with_h11 import parse_with_h11

# the names that a server accepts; "auto" is httptools if it is installed, else h11
PARSERS = ("h11", "httptools", "auto")


def head_parser(name: str) -> HeadParser:
    """Return the parser of that name. ValueError if there is none; ImportError if it is not installed."""
    if name not in PARSERS:
        raise ValueError(f"unknown HTTP parser {name!r}: choose one of {', '.join(PARSERS)}")
    if name == "h11" or (name == "auto" and find_spec("httptools") is None):
        return parse_with_h11
    from .with_httptools import HttptoolsHeads

    return HttptoolsHeads().parse
