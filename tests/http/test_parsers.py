"""The choice of the parser that reads heads, also where httptools is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deadlined.http import PARSERS, head_parser

HEAD = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"

WITHOUT = """
import sys
sys.modules["httptools"] = None
from deadlined.http import head_parser
print(head_parser("auto")(b"GET /a HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n").target)
try:
    head_parser("httptools")
except ImportError:
    print("not installed")
"""


@pytest.mark.parametrize("name", PARSERS)
def test_every_parser_reads(name: str) -> None:
    assert head_parser(name)(HEAD).target == b"/a"


def test_auto_is_httptools_where_it_is_installed() -> None:
    assert type(head_parser("auto")) is type(head_parser("httptools"))
    assert head_parser("auto").__name__ != head_parser("h11").__name__


def test_an_unknown_parser_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown HTTP parser 'llhttp': choose one of h11, httptools, auto"):
        head_parser("llhttp")


def test_without_httptools_auto_is_h11_and_httptools_an_import_error() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("\n")[:2] == ["b'/a'", "not installed"]
