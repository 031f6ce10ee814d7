"""A check of a `ServeConfig` that a program has made: it may have values that no flag, variable or file can give."""

from __future__ import annotations

from typing import Any

from .kinds import Kind, Mode
from .model import ServeConfig
from .settings import SETTINGS


def wrong_values(config: ServeConfig) -> list[str]:
    """Return a line for each wrong value of a field. TypeError for anything but a ServeConfig."""
    if not isinstance(config, ServeConfig):
        raise TypeError(f"serve takes a ServeConfig, not {config!r}: serve(ServeConfig(app='package.module:app'))")
    problems = []
    for name, setting in SETTINGS.items():
        # those of other classes were checked when these were made
        if setting.owner is ServeConfig and (value := getattr(config, name)) != setting.default:
            try:
                _check(setting.kind, value)
            except ValueError as error:
                problems.append(f"{name}: {error}")
    return problems


def _check(kind: Kind, value: Any) -> None:
    """Raise ValueError if the value is not of the kind of its field, or is written as only a file may write it."""
    if isinstance(kind, Mode) and isinstance(value, int):
        kind.parse(kind.text(value))
        return
    accepted = kind.accept(value)
    if accepted != value and not isinstance(value, list):
        raise ValueError(f"{value!r} is how a file has it: write {accepted!r}")
