"""The beginning of a drain, as handlers see it: they can wait for it, but not cause it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ..runtime import Event


class Draining:
    """The beginning of the server's drain. `await draining` returns when it comes, any number of times."""

    __slots__ = ("_began",)

    def __init__(self, began: Event) -> None:
        self._began = began

    def is_set(self) -> bool:
        """Return True once the server drains."""
        return self._began.is_set()

    def __await__(self) -> Generator[Any, None, None]:
        return self._began.wait().__await__()
