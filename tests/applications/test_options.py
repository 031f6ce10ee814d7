"""Each option of another server that is installed is one here, or is answered with what to give instead."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from deadlined.cli import serve_command
from deadlined.cli.habits import instead_of
from tests.test_cli_habits import options


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
