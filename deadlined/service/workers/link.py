"""The worker process's end of the connection between it and its supervisor.

It is a socket pair on which frames are sent: the worker process says when it serves and when it drains, and answers
questions; the supervisor says which sockets it accepts from, that the service ends (`STOP`), and ends it at once
(`END`). When either process dies, the kernel closes its end, and the other process notices. A supervisor that lags
delays no one: `outgoing.py`.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket as stdlib
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from ...net import Conn
from ...runtime import Event, open_group
from .accepting import descriptors_in
from .frames import ACCEPT, ASK, CONFIGURE, END, LEAVING, MOST_DESCRIPTORS, READY, STOP, TELL, Frames, frame
from .last_block import LastBlock
from .outgoing import Outgoing

_AT_ONCE = 16 * 1024

# for the descriptors of one message
_SPACE = stdlib.CMSG_SPACE(MOST_DESCRIPTORS * array("i").itemsize)

# descriptors that arrive must not get into a program that another thread starts in that moment. macOS has no such flag;
# socket.recv_fds ignores flags
_FLAGS = getattr(stdlib, "MSG_CMSG_CLOEXEC", 0)

_log = logging.getLogger("deadlined.service")


@dataclass(frozen=True)
class Orders:
    """What a worker process does on its supervisor's orders. `stop()` notes that the service ends, `end()` cuts the
    drain short, `reply(question)` answers, `accept(payload, descriptors)` takes an ACCEPT frame, `configure(payload)` a
    CONFIGURE frame."""

    stop: Callable[[], object]
    end: Callable[[], object]
    reply: Callable[[bytes], Awaitable[bytes]]
    accept: Callable[[bytes, Sequence[int]], object]
    configure: Callable[[bytes], object]


class Link:
    """The worker process's end; made after the fork. `number`: that of the worker process, from 1 on; one that replaces
    another has its number. `first`: no other was ready before. `urls`: where the service listens. `block`: where the
    supervisor looks for what blocks the event loop."""

    def __init__(
        self,
        socket: stdlib.socket,
        number: int = 1,
        first: bool = True,
        urls: Sequence[str] = (),
        block: LastBlock | None = None,
    ) -> None:
        self._socket = socket
        self._outgoing = Outgoing(socket)
        self.number = number
        self.first = first
        self.urls = urls
        self.block: LastBlock = block or LastBlock()
        # descriptors that have arrived, and whose frame is not complete yet
        self._descriptors: list[int] = []
        # questions that were not answered yet
        self._questions: deque[bytes] = deque()
        self._asked = Event()

    def report_ready(self) -> None:
        """Tell the supervisor that this process serves."""
        self._outgoing.send(frame(READY))

    def report_leaving(self) -> None:
        """Tell the supervisor that this process accepts no connection any more."""
        self._outgoing.send(frame(LEAVING))

    def tell(self, answer: bytes) -> None:
        """Send the supervisor a last answer, unasked, before the process ends. It may be lost."""
        self._outgoing.send(frame(TELL, answer))

    def close(self) -> None:
        """Close this end, which `follow` has done, too, if it was called. Idempotent."""
        self._socket.close()

    async def follow(self, orders: Orders) -> None:
        """Do what the supervisor says, and drain as upon SIGTERM when it is gone. Never returns."""
        async with Conn.from_socket(self._socket) as conn, open_group() as group:
            group.start_soon(self._outgoing.follow, conn)
            # an answer may take a while, and orders must not wait for it
            group.start_soon(self._answer, orders.reply)
            frames = Frames()
            while data := await self._receive(conn):
                for kind, payload in frames.feed(data):
                    self._do(kind, payload, orders)
            signal.raise_signal(signal.SIGTERM)
            await Event().wait()

    def _do(self, kind: bytes, payload: bytes, orders: Orders) -> None:
        if kind == STOP:
            orders.stop()
        elif kind == END:
            orders.end()
        elif kind == ACCEPT:
            self._accept(payload, orders)
        elif kind == CONFIGURE:
            orders.configure(payload)
        elif kind == ASK:
            self._questions.append(payload)
            self._asked.set()

    async def _answer(self, reply: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Answer one question after another, each when the supervisor has room for its answer."""
        while True:
            await self._asked.wait()
            self._asked = Event()
            while self._questions:
                self._outgoing.send(frame(TELL, await _reply(reply, self._questions.popleft())))
                await self._outgoing.sent()

    def _accept(self, payload: bytes, orders: Orders) -> None:
        number = descriptors_in(payload)
        found, self._descriptors = self._descriptors[:number], self._descriptors[number:]
        try:
            if len(found) < number:
                for descriptor in found:
                    os.close(descriptor)
                raise OSError(errno.EMFILE, "a listening socket has not arrived: too many open files")
            orders.accept(payload, found)
        except OSError:
            # connections would wait for this process in vain
            _log.exception("this worker process cannot listen; it drains, and is replaced")
            signal.raise_signal(signal.SIGTERM)

    async def _receive(self, conn: Conn) -> bytes:
        """Return the next bytes, or b"" when the supervisor is gone."""
        while True:
            try:
                data, ancillary, _, _ = conn.socket.recvmsg(_AT_ONCE, _SPACE, _FLAGS)
            except (BlockingIOError, InterruptedError):
                await conn.wait_readable()
            except OSError:
                return b""
            else:
                arrived = _descriptors_of(ancillary)
                for each in arrived:
                    # nor into one that the application starts later
                    os.set_inheritable(each, False)
                self._descriptors += arrived
                return data


def _descriptors_of(ancillary: Iterable[tuple[int, int, bytes]]) -> array[int]:
    """Return the descriptors that have come with a message."""
    found = array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (stdlib.SOL_SOCKET, stdlib.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found


async def _reply(reply: Callable[[bytes], Awaitable[bytes]], question: bytes) -> bytes:
    """Return the answer, b"" if there is none: a question must not end a process that serves."""
    try:
        return await reply(question)
    except Exception:
        _log.exception("cannot answer the supervisor's question %r", question)
        return b""
