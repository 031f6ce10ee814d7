"""The host of trio: how a task parks and is woken, contained tasks, and the pump."""

from __future__ import annotations

from .host import TrioHost, current_trio_host, started_trio_host

__all__ = ["TrioHost", "current_trio_host", "started_trio_host"]
