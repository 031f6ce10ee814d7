"""The messages of a websocket that wait for its handler, and the tasks of the handler that wait for messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ..runtime import Host, Waiter
from .ending import EndingExchange

# messages, and their bytes, that may wait: beyond, the peer is not read
_MOST_MESSAGES: Final = 64
_MOST_BYTES: Final = 64 * 1024


class Inbox:
    """A queue between the poller's call, which puts messages, and the handler's tasks, which take them."""

    __slots__ = ("_messages", "_receivers", "_size", "taken")

    def __init__(self) -> None:
        self._messages: deque[str | bytes] = deque()
        # bytes, or characters of texts
        self._size = 0
        # messages that were taken, ever
        self.taken: int = 0
        self._receivers: list[Waiter] = []

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def full(self) -> bool:
        """True if no more should be put."""
        return len(self._messages) >= _MOST_MESSAGES or self._size >= _MOST_BYTES

    def put(self, messages: Sequence[str | bytes]) -> None:
        """Append messages, also beyond the bound, and wake the tasks that wait."""
        self._messages.extend(messages)
        for message in messages:
            self._size += len(message)
        self.wake()

    def pop(self) -> str | bytes:
        """Remove the first message. IndexError if there is none."""
        message = self._messages.popleft()
        self._size -= len(message)
        self.taken += 1
        return message

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()
        self._size = 0

    async def wait(self, host: Host, exchange: EndingExchange) -> None:
        """Sleep until `wake` is called, and have `exchange` note that. A checkpoint. A cancellation takes nothing from
        the queue."""
        waiter = host.waiter()
        self._receivers.append(waiter)
        other = exchange.in_other_task
        exchange.count_others(other)
        try:
            await waiter.park(lambda: self._receivers.remove(waiter))
        finally:
            exchange.count_others(-other)

    def wake(self) -> None:
        """Wake all tasks that wait: each must see whether there is a message for it."""
        receivers, self._receivers = self._receivers, []
        for waiter in receivers:
            waiter.wake(0.0)
