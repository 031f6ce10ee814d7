"""Processes and operations: the implementation of the commands."""

from __future__ import annotations

from .config import ServeConfig, Sources
from .errors import StartupError
from .process.allocator import keep_freed_memory
from .process.garbage import tune_gc

__all__ = ["ServeConfig", "StartupError", "keep_freed_memory", "serve", "tune_gc"]


def serve(config: ServeConfig, sources: Sources | None = None) -> int:
    """Serve until a signal, then drain; return the exit code. StartupError if it cannot start.

    It is the command: it handles signals and runs an event loop of its own. RuntimeError outside of the main thread or
    in a running event loop: `deadlined.asgi.serve` serves there.

    A reload makes the configuration from `sources` again; with None it stays as it is.

    Replaces `sys.stdout` and `sys.stderr`. With several worker processes, or `reload`, it forks, and returns in each
    process.
    """
    # not loaded for a help text
    from .serving.serving import serve as run

    return run(config, sources)
