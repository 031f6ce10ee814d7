"""A compiled checkout says which of its sources have been edited since."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from deadlined.freshness import RECORD, stale_sources, warn_if_stale

COMPILED = "timers/facility.cpython-311-x86_64-linux-gnu.so"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of which two sources were compiled."""
    package = tmp_path / "deadlined"
    (package / "net").mkdir(parents=True)
    for name in ("deadlined/net/conn.py", "deadlined/net/side.py", "deadlined/cli.py"):
        (tmp_path / name).write_text(f"# {name}\n")
    compiled = ["deadlined/net/conn.py", "deadlined/net/side.py"]
    lines = [f"{hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}  {name}\n" for name in compiled]
    (package / RECORD).write_text("".join(lines))
    (package / COMPILED).parent.mkdir()
    (package / COMPILED).touch()
    return package


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        (lambda package: None, []),
        (lambda package: (package / "net/conn.py").touch(), []),
        (lambda package: (package / "cli.py").write_text("edited"), []),
        (lambda package: (package / "net/conn.py").write_text("not Python ("), ["deadlined/net/conn.py"]),
        (lambda package: (package / "net/side.py").unlink(), ["deadlined/net/side.py"]),
        (lambda package: (package / RECORD).unlink(), []),
        (lambda package: [(package / "net/conn.py").write_text("x"), (package / COMPILED).unlink()], []),
    ],
    ids=["nothing", "touched", "an interpreted one", "edited", "removed", "no record", "no longer compiled"],
)
def test_a_source_is_stale_if_it_is_not_what_was_compiled(
    package: Path, change: Callable[[Path], object], stale: list[str]
) -> None:
    change(package)
    assert stale_sources(package) == stale


def test_the_warning_names_the_source(package: Path) -> None:
    (package / "net/conn.py").write_text("edited")
    with pytest.warns(RuntimeWarning, match=r"without effect .*: deadlined/net/conn\.py$"):
        warn_if_stale(package)


def test_there_is_no_warning_where_nothing_was_edited(package: Path) -> None:
    with warnings.catch_warnings(action="error"):
        warn_if_stale(package)
