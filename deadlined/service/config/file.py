"""The file of the configuration, in TOML, with the line of each key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# a key as a path: ("idle",) is the key `idle`, ("route", 1, "idle") that of the second [[route]]
Key = tuple[str | int, ...]


class FileError(Exception):
    """A file cannot be read, or is not TOML. The message is one line that names the file."""


def read(path: str) -> tuple[dict[str, Any], str]:
    """Return the values of a file, and its text. FileError if it cannot be read."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        return tomllib.loads(text), text
    except OSError as error:
        raise FileError(f"{path}: cannot read it: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{path}: not TOML: {error}") from None
    except (ValueError, RecursionError) as error:
        # a null byte in the name; thousands of nested brackets
        raise FileError(f"{path!r}: {error}") from None


def lines(text: str) -> dict[Key, int]:
    """Return the line, from 1, on which each key of a valid TOML text begins.

    `tomllib` does not report lines. So the text is split into its statements, which are the shortest runs of lines that
    are TOML by themselves.
    """
    found: dict[Key, int] = {}
    table: Key = ()
    counts: dict[str, int] = {}
    for number, statement, values in _statements(text):
        if statement.lstrip().startswith("["):
            (name, *rest), is_array = _path(values)
            if is_array:
                counts[str(name)] = counts.get(str(name), -1) + 1
            table = (name, *((counts[str(name)],) if str(name) in counts else ()), *rest)
            found.setdefault(table, number)
        else:
            for key in values:
                found.setdefault((*table, key), number)
    return found


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Give the first line, the text and the values of each statement that has values."""
    start, pending = 1, ""
    # not `splitlines`, which ends lines at characters that a comment or a text may have
    for number, line in enumerate(text.split("\n"), 1):
        pending += line + "\n"
        try:
            values = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue
        if values:
            yield start, pending, values
        start, pending = number + 1, ""


def _path(values: Any) -> tuple[list[str], bool]:
    """Return the names of a table's header, and whether it is one of an array."""
    names: list[str] = []
    is_array = False
    while values:
        if isinstance(values, list):
            is_array = is_array or len(names) == 1
            values = values[0]
        else:
            ((name, values),) = values.items()
            names.append(name)
    return names, is_array
