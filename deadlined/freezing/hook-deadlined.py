# ruff: noqa: N999  # PyInstaller takes a hook's package from the name of its file
"""PyInstaller's hook: what it cannot find by reading the imports of a program.

The data files; modules that are loaded by name, or by compiled ones, whose imports nobody can read; and what these are
compiled into, a module outside of the package.
"""

from __future__ import annotations

from importlib.metadata import files
from importlib.util import find_spec

from PyInstaller.utils.hooks import collect_data_files, collect_submodules  # type: ignore[import-untyped]

LIBRARIES = ("h11", "httptools", "trio", "uvloop", "websockets")
COMPILED = [path.name.partition(".")[0] for path in files("deadlined") or () if "__mypyc." in path.name]

datas: list[tuple[str, str]] = collect_data_files("deadlined")
hiddenimports: list[str] = [*COMPILED, *collect_submodules("deadlined"), *filter(find_spec, LIBRARIES)]
