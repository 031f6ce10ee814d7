"""A port without a kernel, for tests of the poller: events come from a list."""

from __future__ import annotations


class FakePort:
    """A port that delivers posted events in order, and records the watched descriptors and the timeouts of its
    waits."""

    name: str = "fake"

    def __init__(self) -> None:
        self.watched: set[int] = set()
        self.waits: list[float] = []
        self.closed: bool = False
        self._events: list[tuple[int, int]] = []

    def post(self, fd: int, mask: int) -> None:
        """Make the next `wait` report `mask` for `fd`, watched or not."""
        self._events.append((fd, mask))

    def register(self, fd: int) -> None:
        if fd in self.watched:
            raise FileExistsError(f"descriptor {fd} is watched already")
        self.watched.add(fd)

    def deregister(self, fd: int) -> None:
        self.watched.remove(fd)

    def wait(self, timeout: float) -> list[tuple[int, int]]:
        self.waits.append(timeout)
        events = self._events
        self._events = []
        return events

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self.closed = True
