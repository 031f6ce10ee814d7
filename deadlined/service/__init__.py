"""Processes and operations: what the commands run."""

from __future__ import annotations

from .collector import relax
from .errors import StartupError
from .serving import ServeConfig, serve

__all__ = ["ServeConfig", "StartupError", "relax", "serve"]
