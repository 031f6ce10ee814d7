"""The messages of a websocket that wait for its handler, the tasks that wait for messages, and the message that has not
come whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ..runtime import Host, Waiter
from .ending import EndingExchange
from .policy import body_deadline
from .timeouts import INF, Timeouts

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


class Incomplete:
    """The message of which the end has not come, if there is one: since when it comes, and how much has come."""

    __slots__ = ("_began", "_received")

    def __init__(self) -> None:
        # when its first bytes came, INF if there is none; and bytes that have come since
        self._began: float = INF
        self._received: int = 0

    def note(self, incomplete: bool, complete: bool, size: int, now: float) -> bool:
        """Note that `size` bytes came at `now`: with them a message was complete, or one is incomplete, or both. Return
        True if one begins with them."""
        if not incomplete:
            self._began = INF
            return False
        if self._began < INF and not complete:
            self._received += size
            return False
        self._began = now
        # of what came with the end of another message nobody knows how much is of this one
        self._received = 0 if complete else size
        return True

    def begin_again(self, now: float) -> None:
        """Count the time of the message from `now`: nothing was read before."""
        if self._began < INF:
            self._began = now

    def deadline(self, timeouts: Timeouts) -> float:
        """Return when more of it must have come; INF if there is none."""
        return INF if self._began == INF else body_deadline(INF, self._began, self._received, timeouts)[0]
