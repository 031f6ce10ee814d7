"""Which parser the servers of a test use. A test module that is marked with `usefixtures("parser")` runs with each."""

from __future__ import annotations

PARSERS = ("h11", "httptools")


class Choice:
    """The parser of the test that is running."""

    name = "auto"
