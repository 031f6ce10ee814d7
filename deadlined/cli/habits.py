"""What to give instead of options of uvicorn, gunicorn, hypercorn and granian that `deadlined serve` does not have.

The answers are data, in habits.toml, which is read when such an option was given.
"""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from importlib.resources import files


def instead_of(option: str) -> str | None:
    """Return what to give instead of an option of another server, None if it is not known."""
    # what is said of an option is true of its opposite
    names = (option, f"--{option.removeprefix('--no-')}")
    found = (answer for known, answer in answers().items() if any(fnmatchcase(name, known) for name in names))
    return next(found, None)


def answers() -> dict[str, str]:
    """Return the answers by the names of the options, some of which end with `*`."""
    hints = tomllib.loads(files(__package__).joinpath("habits.toml").read_text(encoding="utf-8"))["hint"]
    return {option: hint["answer"] for hint in hints for option in hint["options"]}
