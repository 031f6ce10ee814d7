"""The pieces of a response that could not be sent at once.

Facts      Several tasks of a handler may send pieces of one body, and a send may have to wait for the peer.
Hazard     A piece that overtakes another, or is sent in the middle of it, corrupts the response without anybody
           noticing.
Answer     Pieces are queued in the order of the calls. One task sends at a time, always the oldest piece, whichever
           task has queued it; each task waits until its own piece is sent.
Cost       An object, only for a response that had to wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from ..runtime import Event
from .errors import Disconnected

# sends the rest of a piece after the first so many bytes
SendPiece = Callable[[bytes, int], Awaitable[None]]


class SendQueue:
    """`append` pieces, then `flush` up to the `end` of them. `close` it when the peer is gone."""

    __slots__ = ("_busy", "_closed", "_first_taken", "_pieces", "_turn", "end", "sent")

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        # bytes of the first piece that are sent already
        self._first_taken: int = 0
        # pieces that were ever appended, and how many of them were sent
        self.end: int = 0
        self.sent: int = 0
        # a task sends the first piece now; others wait for the event
        self._busy: bool = False
        self._turn: Event | None = None
        self._closed: bool = False

    @property
    def is_empty(self) -> bool:
        """True if all pieces are sent."""
        return not self._pieces

    def append(self, piece: bytes, taken: int) -> None:
        """Queue a piece, of which the first `taken` bytes are sent already; 0 unless the queue is empty."""
        if not self._pieces:
            self._first_taken = taken
        self._pieces.append(piece)
        self.end += 1

    async def flush(self, end: int, send: SendPiece) -> None:
        """Send pieces until the first `end` that were ever queued are sent. Disconnected once closed."""
        while self.sent < end:
            if self._closed:
                raise Disconnected("the peer is gone")
            if self._busy:
                await self._wait_for_turn()
            else:
                await self._send_first(send)

    def close(self) -> None:
        """Let every `flush` fail that is not done."""
        self._closed = True
        self._pass_turn()

    async def _send_first(self, send: SendPiece) -> None:
        self._busy = True
        try:
            await send(self._pieces[0], self._first_taken)
            self._pieces.popleft()
            self._first_taken = 0
            self.sent += 1
        finally:
            self._busy = False
            self._pass_turn()

    async def _wait_for_turn(self) -> None:
        if self._turn is None:
            self._turn = Event()
        await self._turn.wait()

    def _pass_turn(self) -> None:
        if self._turn is not None:
            self._turn.set()
            self._turn = None
