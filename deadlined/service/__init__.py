"""Processes and operations: what the commands run."""

from __future__ import annotations

from .collector import tune_gc
from .errors import StartupError
from .serving import ServeConfig, serve

__all__ = ["ServeConfig", "StartupError", "serve", "tune_gc"]
