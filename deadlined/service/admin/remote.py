"""A service as its admin process sees it: a supervisor that answers questions over a socket pair."""

from __future__ import annotations

import socket as stdlib

import msgspec

from ...net import BrokenResourceError, Conn
from ...runtime import Event, current_time
from ..workers.frames import ASK, CONFIGURE, TELL, Frames, frame
from .picture import Picture, Question
from .service import Service, UnavailableError

# seconds; the supervisor answers half a second after the question at the latest
_PATIENCE = 3.0

_AT_ONCE = 256 * 1024


class RemoteService(Service):
    """The supervisor at the other end of `socket`. Make it in a running event loop, and let a task call `follow`."""

    def __init__(self, socket: stdlib.socket) -> None:
        self._conn = Conn.from_socket(socket)
        self._frames = Frames()
        self._asked = 0
        self._expected: dict[int, Event] = {}
        self._pictures: dict[int, Picture] = {}

    async def follow(self) -> None:
        """Receive pictures until the supervisor is gone."""
        async with self._conn:
            while data := await self._receive():
                for kind, payload in self._frames.feed(data):
                    if kind == TELL:
                        self._told(msgspec.json.decode(payload, type=Picture))
                    elif kind == CONFIGURE:
                        self.config = msgspec.json.decode(payload)

    async def ask(self, question: Question) -> Picture:
        self._asked += 1
        number = self._asked
        came = self._expected[number] = Event()
        try:
            self._send(msgspec.json.encode(msgspec.structs.replace(question, id=number)))
            await came.wait_until(current_time() + _PATIENCE)
        finally:
            del self._expected[number]
        picture = self._pictures.pop(number, None)
        if picture is None:
            raise UnavailableError("the supervisor does not answer")
        return picture

    def _told(self, picture: Picture) -> None:
        # the question of a picture that comes too late has been given up
        if picture.id in self._expected:
            self._pictures[picture.id] = picture
            self._expected[picture.id].set()

    def _send(self, question: bytes) -> None:
        data = frame(ASK, question)
        try:
            sent = self._conn.socket.send(data)
        except OSError:
            sent = 0
        if sent < len(data):
            # its buffer holds hundreds of questions: it hangs, or is gone
            if sent:
                self._conn.close()
            raise UnavailableError("the supervisor takes no questions")

    async def _receive(self) -> bytes:
        try:
            return await self._conn.receive_some(_AT_ONCE)
        except BrokenResourceError:
            return b""
