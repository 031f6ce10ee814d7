# ruff: noqa: N999  # PyInstaller takes a hook's package from the name of its file
"""PyInstaller's hook: the parts of the package that it does not find by reading the imports of a program.

These are the data files; the modules that are loaded by name; what compiled modules import, which cannot be read; and
the extension module, outside of the package, that has the code of all compiled modules.
"""

from __future__ import annotations

from importlib.metadata import files
from importlib.util import find_spec

from PyInstaller.utils.hooks import collect_data_files, collect_submodules  # type: ignore[import-untyped]

LIBRARIES = ("h11", "httptools", "trio", "uvloop", "websockets")
COMPILED = [path.name.partition(".")[0] for path in files("deadlined") or () if "__mypyc." in path.name]

datas: list[tuple[str, str]] = collect_data_files("deadlined")
hiddenimports: list[str] = [*COMPILED, *collect_submodules("deadlined"), *filter(find_spec, LIBRARIES)]
