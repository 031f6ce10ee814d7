"""Processes and operations: what the commands run."""

from __future__ import annotations

from .errors import StartupError
from .serving import ServeConfig, serve

__all__ = ["ServeConfig", "StartupError", "serve"]
