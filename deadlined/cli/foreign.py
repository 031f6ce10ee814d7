"""Variables of uvicorn and gunicorn that `deadlined serve` does not read.

A service that was moved here would run without them in silence: behind a proxy, for example, with the proxy's address
as that of every client. They are told unless something else gives the setting.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from ..service.config import SETTINGS
from ..service.config.resolving import DEFAULT

# click gives each option of uvicorn such a variable
_PREFIX: Final = "UVICORN_"

# who may write forwarded fields
_TRUSTED: Final = ("FORWARDED_ALLOW_IPS", "UVICORN_FORWARDED_ALLOW_IPS")

_ARGUMENTS: Final = "GUNICORN_CMD_ARGS"

_PLACES: Final = {"bind", "uds", "host", "port"}


def unused_variables(environment: Mapping[str, str], origins: Mapping[str, str]) -> list[str]:
    """Return a line for each variable of another server that is set and could be meant for this one. `origins`: where
    the value of each setting comes from."""
    given = {name for name, origin in origins.items() if origin != DEFAULT}
    if given & {"bind", "uds"}:
        given |= _PLACES
    names = (*_TRUSTED, _ARGUMENTS)
    found = sorted(name for name, value in environment.items() if value and (name in names or name.startswith(_PREFIX)))
    instead = {name: _instead(name, environment[name], given) for name in found}
    return [f"{name} is not used: {text}" for name, text in instead.items() if text is not None]


def _instead(name: str, value: str, given: Collection[str]) -> str | None:
    """Return what to do instead; None if there is nothing to say."""
    if name == _ARGUMENTS:
        return "give deadlined serve its own options"
    if name in _TRUSTED:
        everybody = "=0.0.0.0/0,::/0" if value.strip() == "*" else ""
        return None if "trusted_proxies" in given else f"set {SETTINGS['trusted_proxies'].variable}{everybody}"
    option = name.removeprefix(_PREFIX).lower()
    if option in SETTINGS:
        # Kubernetes sets UVICORN_PORT for a Service called uvicorn
        is_meant = option not in given and not value.startswith("tcp://")
        return f"set {SETTINGS[option].variable}" if is_meant else None
    from .habits import instead_of

    answer = instead_of(f"--{option.replace('_', '-')}")
    named = {flag[2:].replace("-", "_") for flag in re.findall("--[a-z-]+", answer or "")}
    return None if named & set(given) else answer
