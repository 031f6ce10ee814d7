"""Each option of another server that is installed is one here, or is answered with what to give instead."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from deadlined.cli import serve_command
from deadlined.cli.habits import instead_of
from tests.test_cli_habits import options

PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()


def of_uvicorn(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    return options(pytest.importorskip("uvicorn.main").main)


def of_granian(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    return options(pytest.importorskip("granian.cli").cli)


def of_hypercorn(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    found: set[str] = set()

    def parse_args(parser: argparse.ArgumentParser, *_: object) -> None:
        found.update(parser._option_string_actions)
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    with pytest.raises(SystemExit):
        pytest.importorskip("hypercorn.__main__").main([])
    return found


def of_gunicorn(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    known = pytest.importorskip("gunicorn.config").KNOWN_SETTINGS
    return {name for setting in known for name in setting.cli or ()}


@pytest.mark.parametrize("theirs", [of_uvicorn, of_hypercorn, of_granian, of_gunicorn])
def test_each_option_of_an_installed_server_is_one_here_or_has_its_answer(
    theirs: Callable[[pytest.MonkeyPatch], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = theirs(monkeypatch)
    assert len(found) > 40
    unknown = {name for name in found - options(serve_command) if instead_of(name) is None}
    assert unknown <= {"--version", "--help", "-h"}


def section(title: str) -> str:
    """Return what the page on deployment says below a heading, before the next one."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def flags(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*\*?", text))


def known(name: str, named: set[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in named)


@pytest.mark.parametrize(
    ("title", "theirs", "other"),
    [
        # what has other values, or another meaning
        ("Coming from uvicorn", of_uvicorn, {"--loop", "--http"}),
        ("Coming from gunicorn", of_gunicorn, {"-c", "--config", "-p", "--max-requests", "--root-path"}),
        (
            "Coming from hypercorn",
            of_hypercorn,
            {"-c", "--config", "-p", "--max-requests", "--access-log", "--log-level", "--root-path"},
        ),
    ],
)
def test_those_who_come_from_another_server_find_each_of_its_options_and_what_exists_here(
    title: str, theirs: Callable[[pytest.MonkeyPatch], set[str]], other: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, *rows = section(title).partition("\n\nMeasured")[0].split("\n| ")
    left, here = zip(*(row.split(" | ", 1) for row in rows), strict=True)
    ours = options(serve_command)
    same = flags(text.partition("mean the same:")[2].partition(". ")[0])
    named = flags(" ".join(left))
    found = theirs(monkeypatch) - {"--version", "-v", "--help", "-h"}
    assert same <= ours - other
    assert flags(" ".join(here)) <= ours
    assert {name for name in found if not known(name, same | named)} == set()
    # what has no row is the same in both, what has one is another or has other values
    assert found & ours <= same | other
    assert {name for name in found - ours if not known(name, named)} == set()
