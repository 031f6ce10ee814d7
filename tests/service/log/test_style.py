"""Colours, and text that cannot harm a terminal."""

from __future__ import annotations

import io
import re

import pytest

from deadlined.service.log.style import Style, harmless, wants_colour


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "terminal", "pipe"),
    [
        ({}, True, False),
        ({"TERM": "xterm-256color"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": ""}, True, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
    ],
    ids=str,
)
def test_colours_are_for_terminals_unless_the_environment_says_otherwise(
    variables: dict[str, str], terminal: bool, pipe: bool
) -> None:
    assert (wants_colour(Terminal(), variables), wants_colour(io.StringIO(), variables)) == (terminal, pipe)


def test_paint_needs_a_colour_and_a_text() -> None:
    assert Style(colour=True).paint("bad", "text") == "\x1b[31mtext\x1b[0m"
    assert Style(colour=True).paint("", "text") == "text"
    assert Style(colour=True).paint("bad", "") == ""
    assert Style(colour=False).paint("bad", "text") == "text"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, \N{SNOWMAN} and \N{LATIN SMALL LETTER E WITH ACUTE}", None),
        ("tab\tand no-break\N{NO-BREAK SPACE}space", None),
        ("red \x1b[31m", r"red \x1b[31m"),
        ("C1 \x9b31m", r"C1 \x9b31m"),
        ("two\nlines\r", r"two\nlines\r"),
        ("a\N{RIGHT-TO-LEFT OVERRIDE}b", r"a\u202eb"),
        ("a\N{LINE SEPARATOR}b\N{ZERO WIDTH SPACE}", r"a\u2028b\u200b"),
        ("a\0\x7f\a", r"a\x00\x7f\x07"),
        ("lone \ud800", r"lone \ud800"),
    ],
)
def test_what_moves_the_cursor_is_shown_as_an_escape(text: str, shown: str | None) -> None:
    assert harmless(text) == (text if shown is None else shown)


TRACEBACK = """\
Traceback (most recent call last):
  File "/srv/shop/web.py", line 1, in app
    call()
  File "/venv/site-packages/library.py", line 2, in call
    raise LookupError("\x1b[2J")
LookupError: \x1b[2J"""


def test_a_traceback_shows_the_application_plain_and_libraries_dim() -> None:
    header, own, _, library, source, error = Style(colour=True).traceback(TRACEBACK).splitlines()
    assert own == '  File "/srv/shop/web.py", line 1, in app'
    assert all(line.startswith("\x1b[2m") for line in (header, library, source))
    assert error == "\x1b[31mLookupError: \\x1b[2J\x1b[0m"


def test_without_colours_nothing_is_painted() -> None:
    assert not re.search("[\x1b]", Style(colour=False).traceback(TRACEBACK))
