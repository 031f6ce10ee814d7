"""Processes and operations: the implementation of the commands."""

from __future__ import annotations

from .errors import StartupError
from .garbage import tune_gc
from .serving import ServeConfig, serve

__all__ = ["ServeConfig", "StartupError", "serve", "tune_gc"]
