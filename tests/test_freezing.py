"""What PyInstaller is told about the package: by a hook, which runs here in place of PyInstaller."""

from __future__ import annotations

import runpy
import sys
import tomllib
from importlib import import_module, metadata
from importlib.metadata import PackagePath
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def hook_folder() -> Path:
    """Return the folder that the package names to PyInstaller."""
    module, _, function = PROJECT["entry-points"]["pyinstaller40"]["hook-dirs"].partition(":")
    (folder,) = getattr(import_module(module), function)()
    return Path(folder)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the hook of a compiled package says."""
    hooks: Any = ModuleType("PyInstaller.utils.hooks")
    hooks.collect_data_files = lambda package: [(f"{package}/page.html", package)]
    hooks.collect_submodules = lambda package: [package, f"{package}.poll"]
    for name in ("PyInstaller", "PyInstaller.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, hooks.__name__, hooks)
    installed = ["0f1e__mypyc.cpython-311-x86_64-linux-gnu.so", "deadlined/value.py", "deadlined/value.cpython-311.so"]
    monkeypatch.setattr(metadata, "files", lambda package: [PackagePath(name) for name in installed])
    return runpy.run_path(str(hook_folder() / "hook-deadlined.py"))


def test_a_frozen_program_has_the_data_files(hook: dict[str, Any]) -> None:
    assert hook["datas"] == [("deadlined/page.html", "deadlined")]


def test_a_frozen_program_has_what_no_import_shows(hook: dict[str, Any]) -> None:
    """The module that holds all compiled ones, and what these import; what is imported by its name."""
    assert {"0f1e__mypyc", "deadlined.poll", "trio", "h11", "httptools", "uvloop"} <= set(hook["hiddenimports"])
    assert "value" not in hook["hiddenimports"]
