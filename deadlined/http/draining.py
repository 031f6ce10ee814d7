"""A drain: its beginning and end, and the beginning as handlers see it: they can wait for it, but not cause it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ..poll import Clock
from ..runtime import Event
from .policy import REUSE_GRACE
from .timeouts import INF


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


class Drain:
    """The drain of a server. `began` is set from its beginning on. `since` and `until`: when it has begun and when it
    ends, absolute; `until` is -inf once it was cut. `reuse_grace`: seconds since its last response for which an idle
    connection is kept. `notice`: what handlers see of it."""

    def __init__(self) -> None:
        self.began: Event = Event()
        self.notice: Draining = Draining(self.began)
        self.since: float = INF
        self.until: float = INF
        self.reuse_grace: float = REUSE_GRACE
        self._changed = Event()

    def begin(self, now: float, until: float, reuse_grace: float) -> bool:
        """Begin, and end at `until`. Once it has begun, only make `reuse_grace` shorter. Return False if that changes
        nothing."""
        if not self.began.is_set():
            self.since, self.until = now, until
            self.began.set()
        elif reuse_grace >= self.reuse_grace:
            return False
        self.reuse_grace = reuse_grace
        return True

    def cut(self) -> None:
        """End now. No effect before the beginning, which sets the end."""
        self.until = -INF
        self._changed.set()

    def check(self) -> None:
        """Let `wait` ask again whether the server is busy."""
        self._changed.set()

    async def wait(self, busy: Callable[[], bool], clock: Clock) -> None:
        """Wait until the server is not `busy()` any more, or the drain ends."""
        while busy() and clock.now() < self.until:
            self._changed = Event()
            await self._changed.wait_until(self.until)
