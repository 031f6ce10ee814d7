"""Processes and operations: the implementation of the commands."""

from __future__ import annotations

from .config import ServeConfig
from .errors import StartupError
from .garbage import tune_gc

__all__ = ["ServeConfig", "StartupError", "serve", "tune_gc"]


def serve(config: ServeConfig) -> int:
    """Serve until a signal, then drain; return the exit code. StartupError if it cannot start.

    Replaces `sys.stdout` and `sys.stderr`. With several worker processes this forks and returns in each of them.
    """
    # what a help text need not load
    from .serving import serve as run

    return run(config)
