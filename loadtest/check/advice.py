"""What to change, for servers that are known by their Server field or by other signs of their responses."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from .attacks import Attack

GUARD = "has no such option; put a guard in front (a proxy that has this deadline)"
CROWDED = "limit connections per address in front, or add worker processes: honest clients wait"

# the options by attack, by the beginning of the Server field; "" is for what is not named
_OPTIONS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("advice.toml").read_text(encoding="utf-8"))

# what HAProxy, which names itself nowhere, answers to what is no HTTP
_HAPROXY = b"<h1>400 Bad request</h1>\nYour browser sent an invalid request.\n"


def known(server: str, fields: Mapping[str, str], refusal: bytes = b"") -> str:
    """Return the name of the server that an honest response shows, as this module knows it; "" if it does not.

    deadlined sends no Server field, and its Keep-Alive field with a timeout and nothing else. `refusal`: what was
    answered to what is no HTTP; it shows a proxy in front, whose responses name the server behind it.
    """
    if _HAPROXY in refusal:
        return "haproxy"
    name = server.lower()
    for prefix in _OPTIONS:
        if name.startswith((prefix, f"{prefix}/")) or (prefix == "hypercorn" and name.startswith("hypercorn-")):
            return prefix
    keep_alive = fields.get("keep-alive", "")
    if not name and keep_alive.startswith("timeout=") and "," not in keep_alive and "connection" not in fields:
        return "deadlined"
    return ""


def advice(name: str, attack: Attack) -> str:
    """Return what a user of this server can set against an attack; what to look for if the server is not known."""
    if not name:
        return f"look for {attack.setting}, or put a guard in front that has it"
    options = _OPTIONS[name]
    option = options.get(attack.name, options.get("", GUARD))
    return f"{name} {option}" if option.startswith("has ") else f"{name}: {option}"
