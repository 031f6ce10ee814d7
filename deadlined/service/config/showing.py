"""A configuration as text: TOML that gives the same configuration again, with the origin of each value."""

from __future__ import annotations

from typing import Any

from . import routing
from .groups import COMMANDS, GROUPS
from .resolving import Resolution
from .settings import SETTINGS, Setting

# what counts only without `bind` and `uds`
_PLACES = ("host", "port")


def as_toml(resolution: Resolution) -> str:
    """Return TOML with one line per setting, its origin in a comment, and a heading for the settings of each group that
    are for the same commands. Files are named; what is in them is not shown."""
    headed: dict[str, list[tuple[str, str]]] = {}
    for group in GROUPS:
        for name, setting in SETTINGS.items():
            if setting.group == group:
                headed.setdefault(_heading(setting), []).append(_row(name, resolution))
    parts = []
    for heading, rows in headed.items():
        width = max(len(left) for left, _ in rows)
        parts.append(f"# {heading}\n" + "".join(f"{left:<{width}}  # {origin}\n" for left, origin in rows))
    if resolution.config.routes:
        parts.append(routing.as_toml(resolution.config.routes))
    return "\n".join(parts)


def as_dictionary(resolution: Resolution) -> dict[str, Any]:
    """Return value, origin and commands of each setting, as text, and the routes; a value is None if it is not set. For
    JSON."""
    found: dict[str, Any] = {
        name: {"value": _text(name, resolution), "origin": resolution.origins[name], "commands": setting.commands}
        for name, setting in SETTINGS.items()
    }
    return found | {routing.TABLE: routing.as_dictionaries(resolution.config.routes)}


def _heading(setting: Setting) -> str:
    if setting.commands == COMMANDS:
        return setting.group
    return f"{setting.group}, for {' and '.join(f'deadlined {name}' for name in setting.commands)}"


def _row(name: str, resolution: Resolution) -> tuple[str, str]:
    """Return a setting as TOML, and its origin. TOML has no value for what is not set."""
    setting = SETTINGS[name]
    value = setting.value(resolution.config)
    if value is None or value == ():
        return f"# {name} =", "not set"
    if name in _PLACES and (resolution.config.bind or resolution.config.uds is not None):
        return f"# {name} =", "not used"
    return f"{name} = {setting.kind.toml(value)}", resolution.origins[name]


def _text(name: str, resolution: Resolution) -> str | None:
    setting = SETTINGS[name]
    value = setting.value(resolution.config)
    return None if value is None else setting.kind.text(value)
