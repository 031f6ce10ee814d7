"""The configuration that follows from flags, the environment, a file and the defaults, in this order of precedence.

A variable that other servers have as well (WEB_CONCURRENCY) comes after the file: a platform sets it for all.

Every mistake is reported, not only the first, with its place. The value of an unknown key is never repeated: it may be
a secret that was put into the wrong place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...http import Route
from .conflicts import Given, Layer, conflicts, keep_one_process, keep_one_way_to_listen, leave_out_http
from .model import ServeConfig
from .settings import SETTINGS, build, nearest
from .subjects import keep_one_subject, leave_out_unused

PREFIX: Final = "DEADLINED_"

# variables that are not settings: of the library, of the command, of its build and of its tests
OTHER_VARIABLES: Final = (
    "CONFIG",
    "DEBUG",
    "ENV_FILE",
    "OPT_LEVEL",
    "PURE",
    "REQUIRE_COMPILED",
    "REQUIRE_TOOLS",
    "TRAINING",
)

DEFAULT: Final = "default"

# SD_LISTEN_FDS_START of sd_listen_fds(3)
FIRST_SOCKET: Final = 3


class ConfigurationError(Exception):
    """A configuration is wrong. `problems`: a line for each mistake."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where the configuration comes from. `flags`: the values of the flags that were given, by the settings' names.
    `file`: the path of a TOML file, None for none. `sockets`: how many listening sockets a service manager has passed,
    from descriptor 3 on; they are where to listen if nothing else says so. `command`: which command it is for, None for
    any."""

    command: str | None = None
    flags: Mapping[str, Any] = {}
    environment: Mapping[str, str] = {}
    file: str | None = None
    sockets: int = 0


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration. `origins`: where the value of each setting comes from. `sources`: what the configuration was
    made of.

    `warnings` has a line for each unknown variable with our prefix, for each key of the file that the command does not
    use, for each key that says where to listen in vain, for a variable of other servers that cannot be used, and for
    sockets of the service manager on which nothing listens.
    """

    config: ServeConfig
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    sources: Sources


def resolve(sources: Sources) -> Resolution:
    """Read the sources again, and return what follows from them. ConfigurationError if anything is wrong."""
    problems: list[str] = []
    # the first that has a setting gives its value
    of_file, routes = _of_file(sources.file, problems)
    misplaced, unused = leave_out_unused(of_file, sources.command)
    layers = [_of_flags(sources.flags), _of_variables(sources, problems), of_file, _of_manager(sources)]
    leave_out_http(layers, layers[1])
    two_ways, in_vain = keep_one_way_to_listen(layers, of_file)
    problems += [*misplaced, *two_ways, *keep_one_subject(layers)]
    shared = _of_shared_variables(sources, layers, problems)
    unused += [*in_vain, *keep_one_process(layers, shared)]
    layers.append(shared)
    found = {name: given for layer in reversed(layers) for name, given in layer.items()}
    config = build({name: given.value for name, given in found.items()}, routes)
    # what was wrong has its default now, which may not go together with the rest
    if problems := problems or [_with_place(line, found) for line in conflicts(config, sources.command)]:
        raise ConfigurationError(problems)
    return Resolution(
        config=config,
        origins={name: found[name].origin if name in found else DEFAULT for name in SETTINGS},
        warnings=(*unused, *_unknown_variables(sources.environment), *_unused_sockets(sources, config)),
        sources=sources,
    )


def _with_place(problem: str, found: Layer) -> str:
    """Return a conflict with the place where the setting at the beginning of its line was given, unless that is a
    flag."""
    label = problem.split()[0].rstrip(":")
    given = next((given for name, given in found.items() if SETTINGS[name].label == label), None)
    return problem if given is None or given.origin == label else f"{given.origin}: {problem}"


def _of_manager(sources: Sources) -> Layer:
    """Return the places of the sockets that a service manager has passed."""
    places = tuple(f"fd://{FIRST_SOCKET + number}" for number in range(sources.sockets))
    return {"bind": Given(places, "LISTEN_FDS")} if places else {}


def _unused_sockets(sources: Sources, config: ServeConfig) -> list[str]:
    """Return a warning if nothing listens on a socket of the service manager."""
    unused = [f"fd://{FIRST_SOCKET + number}" for number in range(sources.sockets)]
    unused = [place for place in unused if place not in config.bind]
    return [f"the service manager has passed {', '.join(unused)}, and nothing listens there"] if unused else []


def _of_flags(flags: Mapping[str, Any]) -> Layer:
    """Return the values of the flags."""
    given = [(SETTINGS[name], value) for name, value in flags.items()]
    return {setting.name: Given(value, setting.label) for setting, value in given}


def _of_variables(sources: Sources, problems: list[str]) -> Layer:
    """Return the values of the variables that the command uses. An empty variable counts as not set."""
    found: Layer = {}
    for setting in SETTINGS.values():
        text = sources.environment.get(setting.variable)
        if not text or not setting.is_of(sources.command):
            continue
        try:
            found[setting.name] = Given(setting.parse(text), setting.variable)
        except ValueError as error:
            of_kubernetes = setting.name == "port" and text.startswith("tcp://")
            hint = "; Kubernetes sets it for a Service called deadlined: set enableServiceLinks to false"
            problems.append(f"{setting.variable}: {error}{hint if of_kubernetes else ''}")
    return found


def _of_shared_variables(sources: Sources, layers: list[Layer], problems: list[str]) -> Layer:
    """Return the values of the variables that other servers have as well, for settings that none of `layers` gives."""
    found: Layer = {}
    for setting in [each for each in SETTINGS.values() if each.shared_variable and each.is_of(sources.command)]:
        text = sources.environment.get(setting.shared_variable)
        if not text or any(setting.name in layer for layer in layers):
            continue
        try:
            found[setting.name] = Given(setting.parse(text), setting.shared_variable)
        except ValueError as error:
            problems.append(f"{setting.shared_variable}: {error}; {setting.flag} comes before it")
    return found


def _of_file(path: str | None, problems: list[str]) -> tuple[Layer, tuple[Route, ...]]:
    """Return the values of a file, and its routes."""
    found: Layer = {}
    if path is None:
        return found, ()
    # a start without a file need not load the parser
    from .file import FileError, lines, read
    from .routing import TABLE, read_routes

    try:
        values, text = read(path)
    except FileError as error:
        problems.append(str(error))
        return found, ()
    at = lines(text)
    routes = read_routes(values.pop(TABLE), path, at, problems) if TABLE in values else ()
    for key, value in values.items():
        # of an array of tables the first
        line = at.get((key,), at.get((key, 0)))
        place = path if line is None else f"{path}:{line}"
        try:
            found[key] = Given(_accepted(key, value), place)
        except ValueError as error:
            problems.append(f"{place}: {key}: {error}")
    return found, routes


def _accepted(key: str, value: Any) -> Any:
    """Return the value of a key of the file. ValueError if the key or its value is wrong."""
    if key not in SETTINGS:
        raise ValueError(f"unknown key{_instead(key, value)}")
    return SETTINGS[key].accept(value)


def _instead(key: str, value: Any) -> str:
    """Return a hint what an unknown key may have been meant for; "" if there is none."""
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return "; the tables are called [[route]]"
    if key.lower().replace("-", "_") not in SETTINGS and isinstance(value, dict):
        return "; settings are at the top of the file, in no table"
    return nearest(key, SETTINGS)


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each unknown variable with our prefix."""
    known = {setting.variable: 0 for setting in SETTINGS.values()} | {PREFIX + name: 0 for name in OTHER_VARIABLES}
    unknown = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    short = {name.removeprefix(PREFIX).lower(): 0 for name in known}
    return [f"unknown variable {name}{_variable_like(name, short)}" for name in unknown]


def _variable_like(name: str, short: Mapping[str, object]) -> str:
    found = nearest(name.removeprefix(PREFIX), short)
    before, mean, key = found.partition("did you mean ")
    return f"{before}{mean}{PREFIX}{key.upper()}" if found else ""
