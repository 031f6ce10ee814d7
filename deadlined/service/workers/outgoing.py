"""What a worker process sends to its supervisor: frames that follow each other, from callers that cannot wait.

Facts      A socket whose buffer is nearly full takes a part of a frame. A supervisor may lag, or hang.
Hazard     A frame that is sent while another one waits for room ends up in the middle of it, and the rest of the stream
           is nonsense. One that is dropped for lack of room is missed: a process drains, and nobody takes its place.
Answer     There is one queue. Who sends adds to it, and what the socket takes at once is sent at once; one task sends
           the rest when there is room.
Cost       Memory for what the supervisor has not read: an answer, and a few frames of five bytes.
"""

from __future__ import annotations

import socket as stdlib

from ...net import Conn
from ...runtime import Event


class Outgoing:
    """The queue of one end of a socket pair. What does not fit its buffer waits for a task that calls `follow`."""

    def __init__(self, socket: stdlib.socket) -> None:
        self._socket = socket
        self._pending = bytearray()
        # something is pending, for the task that sends it; nothing is, for those who wait for that
        self._blocked = Event()
        self._empty = Event()
        self._empty.set()

    def send(self, data: bytes) -> None:
        """Send `data` behind what was sent before: now, if the other end has room, else later. Never blocks or raises.
        No effect if the other end is gone."""
        self._pending += data
        self._flush()

    async def sent(self) -> None:
        """Wait until nothing is pending. A checkpoint in any case."""
        await self._empty.wait()

    async def follow(self, conn: Conn) -> None:
        """Send what is pending when there is room for it. `conn` has the socket, and nobody else may send on it. Never
        returns."""
        while True:
            await self._blocked.wait()
            self._blocked = Event()
            while self._pending:
                await conn.wait_writable()
                self._flush()

    def _flush(self) -> None:
        try:
            # the socket blocks until it is a Conn's
            del self._pending[: self._socket.send(self._pending, stdlib.MSG_DONTWAIT)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            # the other end is gone, which whoever receives from it notices as well
            self._pending.clear()
        if not self._pending:
            self._empty.set()
        elif self._empty.is_set():
            self._empty = Event()
            self._blocked.set()
