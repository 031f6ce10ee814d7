"""A group of tasks: trio's nursery."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from ..host import Group


class TrioGroup(Group):
    """A nursery."""

    __slots__ = ("_manager", "_nursery")

    def __init__(self) -> None:
        self._manager = trio.open_nursery()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Group:
        self._nursery = await self._manager.__aenter__()
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> bool | None:
        return await self._manager.__aexit__(kind, error, traceback)

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(function, *args)

    def cancel(self) -> None:
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()

    def shield(self) -> None:
        assert self._nursery is not None
        self._nursery.cancel_scope.shield = True
