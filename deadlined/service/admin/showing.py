"""The options of a service as the admin listener shows them."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..config.kinds import printable


def shown(config: object) -> dict[str, object]:
    """Return the options as /config shows them: `off` for infinity, modes in octal, texts that UTF-8 can encode. They
    have no secrets, only the names of files that do."""
    found: dict[str, object] = _readable(msgspec.to_builtins(config))
    return found


def _readable(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _readable(inner, key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(inner) for inner in value]
    if isinstance(value, str):
        return printable(value)
    if value == math.inf:
        return "off"
    return f"{value:o}" if name.endswith("_mode") else value
