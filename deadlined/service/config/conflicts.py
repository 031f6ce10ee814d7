"""Settings that do not go together."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from .binds import parse_bind
from .model import ServeConfig


class Given(NamedTuple):
    """A value that a source gives to a setting, and its place in the source."""

    value: Any
    origin: str


# what one source gives, by the names of the settings
Layer = dict[str, Given]

# the ways to say where to listen
_WAYS: Final = {"bind": "bind", "uds": "uds", "host": "port", "port": "port"}


def keep_one_way_to_listen(layers: list[Layer]) -> list[str]:
    """Let the first layer that says where to listen decide in which way, and remove the other ways from all layers.
    Return a line if that layer itself uses two ways."""
    way, problems = None, []
    for layer in layers:
        here = [name for name in _WAYS if name in layer]
        if here and way is None:
            way = _WAYS[here[0]]
            if others := [name for name in here if _WAYS[name] != way]:
                one, other = layer[here[0]].origin, layer[others[0]].origin
                problems.append(f"{one} and {other} both say where to listen; give all places with --bind")
        for name in here:
            if _WAYS[name] != way:
                del layer[name]
    return problems


def conflicts(config: ServeConfig) -> list[str]:
    """Return a line for each pair of settings that do not go together."""
    found = []
    if config.factory and config.app is None:
        found.append("--factory needs APP")
    if config.reload and config.app is None:
        found.append("--reload needs APP")
    if config.reload and config.workers > 1:
        found.append("--reload is for one process; leave --workers out")
    if config.reload_dir and not config.reload:
        found.append("--reload-dir needs --reload")
    if config.certfile is None:
        needing = ("keyfile", "key_password_file", "client_ca", "ciphers")
        found += [f"--{name.replace('_', '-')} needs --certfile" for name in needing if getattr(config, name)]
    if config.admin_token_file is not None and config.admin is None:
        found.append("--admin-token-file needs --admin")
    places = [parse_bind(text) for text in config.bind]
    twice = sorted({str(place) for place in places if places.count(place) > 1})
    found += [f"--bind: {text} is given twice" for text in twice if not text.endswith(":0")]
    return found
