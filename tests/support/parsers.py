"""The parser that the servers of a test use. Tests marked with `usefixtures("parser")` run with each."""

from __future__ import annotations

PARSERS = ("h11", "httptools")


class Choice:
    """The parser of the test that is running."""

    name = "auto"
