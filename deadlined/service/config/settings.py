"""The settings, one for each option: made of the fields of `ServeConfig` and of its parts."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from ...http import Limits, Route
from ...proxy import ProxyLimits
from .groups import GROUPS, SERVE
from .kinds import Flag, Kind, Plain, amount_kind, duration_kind, rate_kind
from .model import ServeConfig
from .parts import HELP, OF_APPLICATIONS, PARTS, Part

# durations that 0 cannot be meant for: no ping, or no request, would be in time. Elsewhere 0 often means off
_ABOVE_ZERO: Final = frozenset(
    {
        *("handshake", "read_header", "read", "write", "handler", "ws_ping"),
        *("upstream_connect", "upstream_first_byte", "upstream_per_try"),
    }
)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One option. `owner`: the class of which it is a field. `commands`: those that have it. `short`: a flag of one
    letter, "" for none. `is_flag`: False for an argument of the command. `shared_variable`: a variable that other
    servers have as well, and whose value comes before the default, "" for none."""

    name: str
    owner: type
    commands: tuple[str, ...]
    group: str
    help: str
    kind: Kind
    default: Any
    short: str = ""
    is_flag: bool = True
    shared_variable: str = ""

    @property
    def flag(self) -> str:
        """The option of the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def label(self) -> str:
        """What the command line calls it in messages."""
        return self.flag if self.is_flag else self.name.upper()

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return f"DEADLINED_{self.name.upper()}"

    def parse(self, text: str) -> Any:
        """Return the value of a flag or a variable. ValueError if it is wrong."""
        return self._checked(self.kind.parse(text))

    def accept(self, value: Any) -> Any:
        """Return the value of a key of the file. ValueError if it is wrong."""
        return self._checked(self.kind.accept(value))

    def value(self, config: ServeConfig) -> Any:
        """Return the value that the configuration has."""
        part = next((name for name, part in PARTS.items() if part.owner is self.owner), None)
        return getattr(config if part is None else getattr(config, part), self.name)

    @property
    def default_text(self) -> str:
        """The default as people write it; "" if there is none."""
        return "" if self.default is None or self.default == () else self.kind.text(self.default)

    def is_of(self, command: str | None) -> bool:
        """Return True if `command` has it; None is any command."""
        return command is None or command in self.commands

    def _checked(self, value: Any) -> Any:
        if self.owner is not ServeConfig:
            # raises ValueError
            self.owner(**{self.name: value})
        return value


def build(values: Mapping[str, Any], routes: tuple[Route, ...] = ()) -> ServeConfig:
    """Make the configuration of the values of some settings and of routes; the others have their defaults."""
    of: dict[type, dict[str, Any]] = {owner: {} for owner in (ServeConfig, *(part.owner for part in PARTS.values()))}
    for name, value in values.items():
        of[SETTINGS[name].owner][name] = value
    parts: dict[str, Any] = {name: part.owner(**of[part.owner]) for name, part in PARTS.items()}
    return ServeConfig(routes=routes, **parts, **of[ServeConfig])


def nearest(name: str, known: Mapping[str, object]) -> str:
    """Return "; did you mean X?" for the key of `known` that is most like `name`, "" if none is."""
    from difflib import get_close_matches

    found = get_close_matches(name.lower().replace("-", "_"), known, n=1)
    return f"; did you mean {found[0]}?" if found else ""


def _settings() -> dict[str, Setting]:
    """Return all settings by their names, in the order of the help."""
    found = [*_of_fields(ServeConfig), *(setting for part in PARTS.values() for setting in _of_part(part))]
    return {setting.name: setting for group in GROUPS for setting in found if setting.group == group}


def _of_fields(owner: type) -> list[Setting]:
    hints = get_type_hints(owner, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(owner)}
    return [_of_field(name, hint, defaults[name]) for name, hint in hints.items() if get_origin(hint) is Annotated]


def _of_field(name: str, hint: Any, default: Any) -> Setting:
    type_, *metas = get_args(hint)
    meta = metas[-1]
    extra = dict(meta.extra)
    return Setting(
        name=name,
        owner=ServeConfig,
        commands=extra.pop("commands"),
        group=extra.pop("group"),
        help=meta.description,
        short=extra.pop("short", ""),
        is_flag=extra.pop("flag", True),
        shared_variable=extra.pop("shared_variable", ""),
        kind=extra.pop("kind", None) or _kind(name, type_, metas[:-1], **extra),
        default=default,
    )


def _kind(setting: str, type_: Any, bounds: list[Any], name: str = "", choices: tuple[str, ...] = ()) -> Kind:
    """Return the kind of a field's type."""
    if type_ is bool:
        return Flag()
    if choices:
        listed = ", ".join(choices)
        return Plain("|".join(choices), Literal[choices], "known", f"choose one of {listed}")
    if type_ is int:
        allowed = f"write {bounds[0].ge} to {bounds[0].le}"
        return Plain(name or setting, _annotated(int, bounds[0]), "allowed", allowed)
    if get_origin(type_) is types.UnionType:
        type_ = str
    return Plain(
        name or setting, _annotated(str, msgspec.Meta(min_length=1)), "allowed", "write a text that is not empty"
    )


def _annotated(type_: type, meta: msgspec.Meta) -> Any:
    return Annotated[type_, meta]


def _of_part(part: Part) -> list[Setting]:
    """Return the settings of a class of numbers, whose names and defaults say all but their help."""
    return [
        Setting(
            name=field.name,
            owner=part.owner,
            commands=(SERVE,) if field.name in OF_APPLICATIONS else part.commands,
            group=part.group,
            # a test fails if one has none
            help=HELP.get(field.name, ""),
            kind=_kind_of_number(part.owner, field.name),
            default=field.default,
        )
        for field in fields(part.owner)
    ]


def _kind_of_number(owner: type, name: str) -> Kind:
    if name.endswith("_min_rate"):
        return rate_kind(f"--{name.removesuffix('_min_rate')}-grace")
    return amount_kind() if owner in (Limits, ProxyLimits) else duration_kind(positive=name in _ABOVE_ZERO)


SETTINGS: Final = _settings()
