"""What to give instead of options of uvicorn, gunicorn, hypercorn, granian and daphne that `deadlined serve` does not
have, and of values of theirs that an option does not take.

The answers are data, in habits.toml, which is read when such an option or value was given.
"""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any


def instead_of(option: str) -> str | None:
    """Return what to give instead of an option of another server, None if it is not known."""
    # what is said of an option is true of its opposite
    names = (option, f"--{option.removeprefix('--no-')}")
    found = (answer for known, answer in answers().items() if any(fnmatchcase(name, known) for name in names))
    return next(found, None)


def answers() -> dict[str, str]:
    """Return the answers by the names of the options, some of which end with `*`."""
    return {option: hint["answer"] for hint in _read()["hint"] for option in hint["options"]}


def instead_of_value(option: str, value: str) -> str | None:
    """Return what to write in place of a value of an option that other servers also have, None if it is not known."""
    found = (hint["answer"] for hint in _read()["value"] if hint["option"] == option and value in hint["values"])
    return next(found, None)


def _read() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("habits.toml").read_text(encoding="utf-8"))
