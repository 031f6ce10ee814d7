"""What of a configuration can change while a service runs, and what needs a restart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...http import Route
from .kinds import printable
from .model import ServeConfig
from .parts import PARTS
from .routing import TABLE, as_dictionaries
from .settings import SETTINGS, Setting

# the files of TLS are read again although their names are the same
_TLS: Final = (
    *("certfile", "keyfile", "key_password_file", "ciphers", "tls_min"),
    *("client_ca", "client_certificate", "client_crl"),
)

# the fields of the model that a running process takes over
_LIVE: Final = (*PARTS, "routes", *_TLS)


class Changes(msgspec.Struct, frozen=True):
    """What differs between two configurations. `changed`: the settings that a running process takes over, each with its
    value before and after, as text that UTF-8 can encode (None: not set). `needs_restart`: the names of the other
    settings that differ."""

    changed: dict[str, tuple[str | None, str | None]]
    needs_restart: list[str]


def changes(old: ServeConfig, new: ServeConfig) -> Changes:
    """Compare two configurations."""
    changed: dict[str, tuple[str | None, str | None]] = {}
    needs_restart = []
    for name, setting in SETTINGS.items():
        before, after = setting.value(old), setting.value(new)
        if before == after:
            continue
        if _is_live(name, old, new):
            changed[name] = _text_of(setting, before), _text_of(setting, after)
        else:
            needs_restart.append(name)
    if old.routes != new.routes:
        changed[TABLE] = _text(old.routes), _text(new.routes)
    return Changes(changed, needs_restart)


def merged(running: ServeConfig, new: ServeConfig) -> ServeConfig:
    """Return `running` with all that a running process can take over from `new`."""
    fields = [name for name in _LIVE if name not in _TLS or _is_live(name, running, new)]
    return msgspec.structs.replace(running, **{name: getattr(new, name) for name in fields})


def encode(config: ServeConfig) -> bytes:
    """Return the part of `config` that a running process can take over, for `apply`."""
    # msgspec refuses the names of files that are not UTF-8
    return json.dumps(msgspec.to_builtins({name: getattr(config, name) for name in _LIVE})).encode()


def apply(running: ServeConfig, encoded: bytes) -> ServeConfig:
    """Return `running` with all that is in `encoded`, which `encode` has returned."""
    found: dict[str, Any] = json.loads(encoded)
    for name, part in PARTS.items():
        found[name] = part.owner(**found[name])
    found["routes"] = tuple(_route(each) for each in found["routes"])
    return msgspec.structs.replace(running, **found)


def _is_live(name: str, old: ServeConfig, new: ServeConfig) -> bool:
    """Return True if a running process can take over this setting. It cannot begin or cease to speak TLS."""
    if name in _TLS:
        return (old.certfile is None) == (new.certfile is None)
    return SETTINGS[name].owner is not ServeConfig


def _text_of(setting: Setting, value: Any) -> str | None:
    return None if value is None else printable(setting.kind.text(value))


def _text(routes: tuple[Route, ...]) -> str:
    return msgspec.json.encode(as_dictionaries(routes)).decode()


def _route(found: Mapping[str, Any]) -> Route:
    return Route(found["path"], frozenset(found["methods"]), found["overrides"], found["observed"])
