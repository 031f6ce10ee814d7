"""One configuration: the model, and what follows from it: flags, variables, a file, help and the reference page."""

from __future__ import annotations

from .groups import COMMANDS, GROUPS, PROXY, RUN, SERVE
from .model import MOST_WORKERS, ServeConfig
from .resolving import ConfigurationError, Resolution, Sources, resolve
from .settings import SETTINGS, Setting

__all__ = [
    "COMMANDS",
    "GROUPS",
    "MOST_WORKERS",
    "PROXY",
    "RUN",
    "SERVE",
    "SETTINGS",
    "ConfigurationError",
    "Resolution",
    "ServeConfig",
    "Setting",
    "Sources",
    "resolve",
]
