"""An ASGI 3 application as the handler of a websocket (asgi.readthedocs.io, WebSocket 2.5).

Facts      The application is called for the request, and accepts it, denies it with a response of HTTP, or closes.
           After the end `send` raises OSError; frameworks make an exception of their own of the disconnect.
Hazard     An application may accept twice, send before it accepts or after it has closed, or never accept. The
           frameworks' exception, which an application need not catch, is not a failure of the application.
           A consumer of Channels that fails because its client is gone is never told of the disconnect, by which it
           leaves its groups.
Answer     One small object per websocket keeps the order. Until it is accepted the exchange is an ordinary one. What an
           application that receives sends to a client that is gone is dropped for a while: a receive tells it.
Cost       An object, a bound method and a scope per websocket; no task.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from ..http import Disconnected, Exchange, ResponseError, UpgradeRefused, WebSocket, open_frames
from ..http.errors import OVER
from ..http.late_sends import LateSends
from ..http.state import DEAD
from ..runtime import Event, checkpoint, current_time
from .messages import DONE, App, Message, Scope, Sender, copied, start

if TYPE_CHECKING:
    from ..http.wire.frames import Frames

_log: Final = logging.getLogger("deadlined.asgi")

# names of exceptions: of Starlette, FastAPI and Litestar; of BlackSheep
_DISCONNECTS: Final = ("WebSocketDisconnect", "WebSocketDisconnectError")

# messages to a client that is gone which are dropped: a loop that does nothing but send would take the processor
_MOST_DROPPED: Final = 1000

_missing_was_logged = False


def asks_for_websocket(exchange: Exchange) -> bool:
    """Return True if the request asks for an upgrade to a websocket."""
    request = exchange.request
    if not request.upgrade or request.method != "GET":
        return False
    return request.offers(b"websocket")


async def serve_websocket(app: App, scope: Scope, exchange: Exchange) -> None:
    """Call `app` for the websocket that `exchange` asks for, with `scope`, which was made for HTTP. Answer an invalid
    request without calling it."""
    try:
        if not exchange.body_done:
            # ASGI has no message by which an application could receive it
            raise UpgradeRefused(400, [], b"a request for a websocket has no body\n")
        frames = open_frames(exchange)
    except UpgradeRefused as refused:
        status, headers, body = refused.status, refused.headers, refused.body
    except ImportError as error:
        _log_missing(exchange, error)
        status, headers, body = 501, [], b"this server has no websockets\n"
    else:
        scope["type"] = "websocket"
        scope["scheme"] = "wss" if scope["scheme"] == "https" else "ws"
        del scope["method"]
        scope["subprotocols"] = frames.offered
        scope["extensions"]["websocket.http.response"] = {}
        await _run(app, scope, WebSocketChannel(exchange, frames))
        return
    exchange.start(status, headers)
    await exchange.send(body, False)


async def _run(app: App, scope: Scope, channel: WebSocketChannel) -> None:
    try:
        await app(scope, channel.receive, channel)
    except Exception as error:
        if not _is_disconnect(error):
            raise
        if not channel.ended:
            raise RuntimeError("the application failed with a disconnect that is not its own client's") from error
        raise Disconnected("the application has not caught its framework's disconnect") from error
    finally:
        channel.left()


class WebSocketChannel(Sender):
    """`receive` and `send` of one websocket; it is itself `send`."""

    __slots__ = (
        "_accepting",
        "_connected",
        "_denied",
        "_exchange",
        "_frames",
        "_late",
        "_watch_ended",
        "_websocket",
        "receives",
    )

    def __init__(self, exchange: Exchange, frames: Frames) -> None:
        super().__init__()
        self._exchange = exchange
        self._frames = frames
        # None until the application accepts
        self._websocket: WebSocket | None = None
        # True once the application got `websocket.connect`
        self._connected = False
        # True once the application has begun to answer with a response of HTTP
        self._denied = False
        # set when the websocket was accepted, or could not be; None while no task accepts it
        self._accepting: Event | None = None
        # set when the task that waits for the peer to leave, before the websocket is accepted, has ended; None if there
        # is none
        self._watch_ended: Event | None = None
        # True while the application runs and has asked for a message of its client: a receive tells it of the end
        self.receives: bool = False
        # messages to a client that is gone
        self._late = LateSends()

    @property
    def ended(self) -> bool:
        """True if the websocket has ended, or cannot be accepted any more."""
        return self._exchange.ended if self._websocket is None else self._websocket.closed is not None

    @property
    def _is_undecided(self) -> bool:
        """True while the websocket may still be accepted."""
        return self._websocket is None and not self._exchange.ended

    def left(self) -> None:
        """Note that the application has returned or failed."""
        self.receives = False
        if self._websocket is None:
            self._frames.release()

    async def receive(self) -> Message:
        """Return the next message. After the end it is `websocket.disconnect`, any number of times."""
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        if self._websocket is None:
            await self._wait_for_change()
        websocket = self._websocket
        if websocket is None:
            self._exchange.note_told()
            return {"type": "websocket.disconnect", "code": 1006, "reason": ""}
        self.receives = True
        message = await websocket.receive()
        if isinstance(message, str):
            return {"type": "websocket.receive", "text": message}
        if message is not None:
            return {"type": "websocket.receive", "bytes": message}
        code, reason = websocket.closed or (1006, "")
        return {"type": "websocket.disconnect", "code": code, "reason": reason}

    async def _wait_for_change(self) -> None:
        """Wait until the websocket is accepted, or can no longer be and the sends of a denial have returned. Tasks that
        wait at the same time take turns."""
        exchange = self._exchange
        was_complete = exchange.writer.complete
        while self._watch_ended is not None:
            await self._watch_ended.wait()
        if self._is_undecided:
            watch_ended = self._watch_ended = Event()
            try:
                while self._is_undecided:
                    await self._exchange.wait_disconnected()
                    if self._accepting is not None:
                        # the upgrade has ended the wait, and may be cancelled
                        await self._accepting.wait()
            finally:
                self._watch_ended = None
                watch_ended.set()
        if self._websocket is None and (exchange.sends or exchange.writer.complete != was_complete):
            # frameworks cancel the task that sends
            await exchange.let_sends_return()

    def send(self, message: Message) -> Awaitable[None]:
        event: dict[str, Any] = message if isinstance(message, dict) else dict(message)
        kind = str(event["type"])
        websocket = self._websocket
        if websocket is None:
            if self._accepting is not None:
                return self._send_after(self._accepting, event)
            return self._send_before(kind, event)
        try:
            if kind == "websocket.send":
                return DONE if websocket.try_send(_payload(event)) else self._finish_send(websocket)
            if kind == "websocket.close":
                websocket.close(*_ending(event))
                return DONE
        except Disconnected:
            if self._may_drop():
                return checkpoint()
            raise
        if kind == "websocket.accept":
            raise ResponseError("the websocket was accepted twice")
        raise ResponseError(f"a websocket that was accepted has no message {kind!r}")

    async def _finish_send(self, websocket: WebSocket) -> None:
        try:
            await websocket.finish_send()
        except Disconnected:
            if not self._may_drop():
                raise

    def _may_drop(self) -> bool:
        """Return True if a message to a client that is gone is dropped: _MOST_DROPPED, for DISCONNECT_GRACE seconds
        after the first, while the application receives, and so is told."""
        return self._late.count(current_time(), _MOST_DROPPED) and self.receives

    def _send_before(self, kind: str, event: dict[str, Any]) -> Awaitable[None]:
        """Send what may come instead of an accepted websocket, or accept it."""
        exchange = self._exchange
        if kind == "websocket.accept" and not self._denied:
            # "" is what applications write that look for one, and find none
            return self._accept(event.get("subprotocol") or None, event.get("headers") or ())
        if kind == "websocket.close" and not self._denied:
            # code and reason are not sent, and FastAPI's reason is a list here
            exchange.start(403, ())
            self._denied = True
            return self._deny(b"", False)
        if kind == "websocket.http.response.start":
            start(exchange, event)
            self._denied = True
            return DONE
        if kind == "websocket.http.response.body" and self._denied:
            return self._deny(event.get("body", b""), bool(event.get("more_body")))
        if kind == "websocket.send" and exchange.link == DEAD:
            # the client has left, perhaps while another task accepted it
            raise Disconnected(OVER)
        done = "denied" if self._denied else "not accepted"
        raise ResponseError(f"{kind!r} cannot be sent: the websocket was {done}")

    async def _send_after(self, accepting: Event, event: dict[str, Any]) -> None:
        """Send what comes while another task accepts, which may take some steps: other tasks of Quart send without
        waiting for the one that accepts."""
        await accepting.wait()
        await self.send(event)

    async def _accept(self, subprotocol: str | None, headers: Any) -> None:
        websocket = WebSocket(self._exchange, self._frames)
        accepting = self._accepting = Event()
        try:
            await websocket.accept(subprotocol, headers)
            self._websocket = websocket
        finally:
            self._accepting = None
            accepting.set()

    def _deny(self, body: Any, more: bool) -> Awaitable[None]:
        exchange = self._exchange
        data = body if isinstance(body, bytes) else copied(body)
        return DONE if exchange.try_send(data, more) else exchange.finish_send()


def _payload(event: dict[str, Any]) -> str | bytes:
    """Return what a `websocket.send` sends."""
    data = event.get("bytes")
    if data is not None:
        return data if isinstance(data, bytes) else copied(data)
    text = event.get("text")
    if not isinstance(text, str):
        raise ResponseError("`websocket.send` needs `bytes`, or `text` that is a str")
    return text


def _ending(event: dict[str, Any]) -> tuple[int, str]:
    """Return code and reason of a `websocket.close`."""
    code, reason = event.get("code"), event.get("reason")
    if not isinstance(code, (int, NoneType)):
        raise ResponseError(f"the code of a close must be an int, not {type(code).__name__}")
    if not isinstance(reason, (str, NoneType)):
        raise ResponseError(f"the reason of a close must be a str, not {type(reason).__name__}")
    return 1000 if code is None else int(code), reason or ""


def _is_disconnect(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_disconnect(inner) for inner in error.exceptions)
    return type(error).__name__ in _DISCONNECTS or isinstance(error, Disconnected)


def _log_missing(exchange: Exchange, error: ImportError) -> None:
    """Say once what must be installed."""
    global _missing_was_logged  # noqa: PLW0603
    if not _missing_was_logged:
        _missing_was_logged = True
        _log.error(
            "%s asks for a websocket: install the extra that serves them, pip install 'deadlined[websockets]' (%s)",
            exchange.request.line,
            error,
        )
