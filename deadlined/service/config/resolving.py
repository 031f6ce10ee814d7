"""The configuration that follows from flags, the environment, a file and the defaults, in this order of precedence.

Every mistake is found, not only the first, and told with its place. The value of an unknown key is never repeated: it
may be a secret that was put into the wrong place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .conflicts import conflicts
from .model import ServeConfig
from .settings import SETTINGS, Setting, build, nearest

PREFIX: Final = "DEADLINED_"

# variables that are no settings: of the library, of the command, of its build and of its tests
OTHER_VARIABLES: Final = ("CONFIG", "DEBUG", "PURE", "REQUIRE_COMPILED", "REQUIRE_TOOLS")

DEFAULT: Final = "default"


class ConfigurationError(Exception):
    """A configuration is wrong. `problems`: a line for each mistake."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where the configuration comes from. `flags`: the values of the flags that were given, by the settings' names.
    `file`: the path of a TOML file, None for none."""

    flags: Mapping[str, Any] = {}
    environment: Mapping[str, str] = {}
    file: str | None = None


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration. `origins` says of each setting where its value comes from. `warnings`: a line for each variable
    that looks like one of ours and is none."""

    config: ServeConfig
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


def resolve(sources: Sources) -> Resolution:
    """Read the sources again, and return what follows from them. ConfigurationError if anything is wrong."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, DEFAULT)
    problems: list[str] = []
    if sources.file is not None:
        _add_file(sources.file, values, origins, problems)
    for setting in SETTINGS.values():
        _add_variable(setting, sources.environment, values, origins, problems)
        if setting.name in sources.flags:
            values[setting.name] = sources.flags[setting.name]
            origins[setting.name] = setting.flag if setting.is_flag else setting.name.upper()
    config = build(values)
    # what was wrong has its default now, which may not go together with the rest
    if problems := problems or conflicts(config, origins):
        raise ConfigurationError(problems)
    return Resolution(config=config, origins=origins, warnings=tuple(_unknown_variables(sources.environment)))


def _add_file(path: str, values: dict[str, Any], origins: dict[str, str], problems: list[str]) -> None:
    """Add the values of a file."""
    # a start without a file need not load the parser
    from .file import FileError, lines, read

    try:
        found, text = read(path)
    except FileError as error:
        problems.append(str(error))
        return
    at = lines(text)
    for key, value in found.items():
        place = f"{path}:{at[(key,)]}" if (key,) in at else path
        setting = SETTINGS.get(key)
        try:
            if setting is None:
                raise ValueError(f"unknown key{_instead(key, value)}")
            values[key] = setting.accept(value)
            origins[key] = place
        except ValueError as error:
            problems.append(f"{place}: {key}: {error}")


def _instead(key: str, value: Any) -> str:
    """Return what may have been meant by an unknown key."""
    if key.lower().replace("-", "_") not in SETTINGS and isinstance(value, dict):
        return "; settings are at the top of the file, in no table"
    return nearest(key, SETTINGS)


def _add_variable(
    setting: Setting,
    environment: Mapping[str, str],
    values: dict[str, Any],
    origins: dict[str, str],
    problems: list[str],
) -> None:
    """Add the value of a setting's variable, unless that is not set or empty."""
    text = environment.get(setting.variable)
    if not text:
        return
    try:
        values[setting.name] = setting.parse(text)
        origins[setting.name] = setting.variable
    except ValueError as error:
        of_kubernetes = setting.name == "port" and text.startswith("tcp://")
        hint = "; Kubernetes sets it for a Service called deadlined: set enableServiceLinks to false"
        problems.append(f"{setting.variable}: {error}{hint if of_kubernetes else ''}")


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable with our prefix that means nothing."""
    known = {setting.variable: 0 for setting in SETTINGS.values()} | {PREFIX + name: 0 for name in OTHER_VARIABLES}
    unknown = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    short = {name.removeprefix(PREFIX).lower(): 0 for name in known}
    return [f"the variable {name} means nothing{_variable_like(name, short)}" for name in unknown]


def _variable_like(name: str, short: Mapping[str, object]) -> str:
    found = nearest(name.removeprefix(PREFIX), short)
    before, mean, key = found.partition("did you mean ")
    return f"{before}{mean}{PREFIX}{key.upper()}" if found else ""
