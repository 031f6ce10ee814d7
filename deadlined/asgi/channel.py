"""`receive` and `send` of an HTTP request.

Facts      ASGI passes messages through `receive` and `send` (asgi.readthedocs.io, HTTP 2.5).
Hazard     An application may receive and send from different tasks, receive for ever to learn of a disconnect, send
           after the peer has gone, or send messages in the wrong order.
Answer     One small object per request keeps the order. What the peer does becomes `http.disconnect`; what the
           application does wrong is raised in the application. A send that waits when the peer leaves returns, and the
           application is cancelled in its next wait: neither an error of the send nor a cancellation in it would reach
           the async generator whose piece is sent, which stands at its `yield`.
Cost       An object and a bound method per request; no task.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from ..http import Disconnected, Exchange, ResponseError
from ..http.files import send_file
from ..runtime import Event, checkpoint
from .messages import DONE, Message, Sender, copied, start

_ENDS_WITH_FILE: Final = "the response ends with the file of its http.response.pathsend: nothing follows it"


class Channel(Sender):
    """`receive` and `send` of one request; it is itself `send`."""

    __slots__ = ("_exchange", "_receive_ended", "_receiving", "_request_given", "_sends_file")

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange
        # True once the application got an `http.request`
        self._request_given = False
        self._receiving = False
        # an `http.response.pathsend` was given
        self._sends_file = False
        # set for the tasks that wait while another one receives; None if there are none
        self._receive_ended: Event | None = None

    async def receive(self) -> Message:
        """Return the next message. Tasks that receive at the same time, for example to learn of the disconnect, take
        turns."""
        while self._receiving:
            if self._receive_ended is None:
                self._receive_ended = Event()
            await self._receive_ended.wait()
        self._receiving = True
        try:
            return await self._next_message()
        finally:
            self._receiving = False
            if self._receive_ended is not None:
                self._receive_ended.set()
                self._receive_ended = None

    async def _next_message(self) -> Message:
        exchange = self._exchange
        was_complete = exchange.writer.complete
        body = None
        if was_complete or (exchange.body_done and self._request_given):
            await exchange.wait_disconnected()
        else:
            try:
                body = exchange.try_receive()
                if body is None:
                    body = await exchange.receive()
            except Disconnected:
                body = None
        if body is None:
            if exchange.sends or exchange.writer.complete != was_complete:
                # frameworks cancel the task that sends
                await exchange.let_sends_return()
            return {"type": "http.disconnect"}
        self._request_given = True
        return {"type": "http.request", "body": body, "more_body": not exchange.body_done}

    def send(self, message: Message) -> Awaitable[None]:
        event: dict[str, Any] = message if isinstance(message, dict) else dict(message)
        # compiled code compares a `str` faster than an object
        kind = str(event["type"])
        if kind == "http.response.start":
            start(self._exchange, event)
        elif kind == "http.response.body":
            exchange = self._exchange
            if self._sends_file:
                raise ResponseError(_ENDS_WITH_FILE)
            body = event.get("body", b"")
            if not exchange.try_send(body if isinstance(body, bytes) else copied(body), bool(event.get("more_body"))):
                return exchange.finish_send()
        elif kind == "http.response.pathsend":
            return self._begin_file(event.get("path"))
        else:
            raise ResponseError(f"an HTTP response has no message {kind!r}")
        return DONE

    def _begin_file(self, path: object) -> Awaitable[None]:
        if self._sends_file:
            raise ResponseError(_ENDS_WITH_FILE)
        if not isinstance(path, str) or not path.startswith("/"):
            raise ResponseError(f"http.response.pathsend needs an absolute path, a str, and not {path!r}")
        # one that comes before the start is refused later, and harms nothing
        self._sends_file = self._exchange.writer.status != 0
        return self._send_file(path)

    async def _send_file(self, path: str) -> None:
        await send_file(self._exchange, path)


class PatientChannel(Channel):
    """`receive` and `send` of a request whose application is left alone when its client leaves.

    What is sent to nobody is discarded: an error would end the application before its end, and a bridge to threads may
    wait for ever for the task that the error has ended.
    """

    __slots__ = ()

    def send(self, message: Message) -> Awaitable[None]:
        try:
            return Channel.send(self, message)
        except Disconnected:
            return checkpoint()

    async def _send_file(self, path: str) -> None:
        discarded = False
        try:
            await send_file(self._exchange, path)
        except Disconnected:
            discarded = True
        if discarded:
            await checkpoint()
