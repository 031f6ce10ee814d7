"""The worker process's end of the connection between it and its supervisor.

It is a socket pair on which frames are sent: the worker process says when it serves, and answers questions; the
supervisor ends it at once with `END`. When either process dies, the kernel closes its end, and the other process
notices.
"""

from __future__ import annotations

import logging
import signal
import socket as stdlib
from collections.abc import Callable

from ..net import BrokenResourceError, ClosedResourceError, Conn
from ..runtime import Event
from .frames import ASK, END, READY, TELL, Frames, frame

_AT_ONCE = 16 * 1024

_log = logging.getLogger("deadlined.service")


class Link:
    """The worker process's end; made after the fork. `number`: that of the worker process, from 1 on; one that replaces
    another has its number. `first`: no other was ready before."""

    def __init__(self, socket: stdlib.socket, number: int = 1, first: bool = True) -> None:
        self._socket = socket
        self.number = number
        self.first = first

    def report_ready(self) -> None:
        """Tell the supervisor that this process serves."""
        self._try_to_send(READY)

    def tell(self, answer: bytes) -> None:
        """Tell the supervisor an answer to no question, the last one before the process ends. It may be lost."""
        self._try_to_send(TELL, answer)

    async def follow(self, end: Callable[[], object], reply: Callable[[bytes], bytes]) -> None:
        """Call `end` for each `END`, answer questions by `reply`, and drain as upon SIGTERM when the supervisor is
        gone. Never returns."""
        frames = Frames()
        async with Conn.from_socket(self._socket) as conn:
            while data := await self._receive(conn):
                for kind, payload in frames.feed(data):
                    if kind == END:
                        end()
                    elif kind == ASK:
                        await self._send(conn, frame(TELL, _reply(reply, payload)))
            signal.raise_signal(signal.SIGTERM)
            await Event().wait()

    async def _receive(self, conn: Conn) -> bytes:
        """Return the next bytes, or b"" when the supervisor is gone."""
        try:
            return await conn.receive_some(_AT_ONCE)
        except BrokenResourceError:
            return b""

    async def _send(self, conn: Conn, data: bytes) -> None:
        try:
            await conn.send_all(data)
        except (BrokenResourceError, ClosedResourceError):
            # the supervisor is gone; the next receive notices that as well
            return

    def _try_to_send(self, kind: bytes, payload: bytes = b"") -> None:
        try:
            self._socket.send(frame(kind, payload))
        except OSError:
            # the supervisor is gone or hangs; `follow` notices if it is gone
            return


def _reply(reply: Callable[[bytes], bytes], question: bytes) -> bytes:
    """Return the answer, b"" if there is none: a question must not end a process that serves."""
    try:
        return reply(question)
    except Exception:
        _log.exception("cannot answer the supervisor's question %r", question)
        return b""
