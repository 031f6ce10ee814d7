"""Settings that do not go together."""

from __future__ import annotations

from collections.abc import Mapping

from .model import ServeConfig


def conflicts(config: ServeConfig, origins: Mapping[str, str]) -> list[str]:
    """Return a line for each pair of settings that do not go together. `origins`: where each setting comes from."""
    found = []
    if config.factory and config.app is None:
        found.append("--factory needs APP")
    if config.certfile is None:
        needing = ("keyfile", "key_password_file", "client_ca", "ciphers")
        found += [f"--{name.replace('_', '-')} needs --certfile" for name in needing if getattr(config, name)]
    if config.workers > 1 and config.uds is not None:
        found.append("--workers: processes can share a port, but not the unix socket of --uds")
    return found
