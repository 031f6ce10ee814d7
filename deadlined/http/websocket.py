"""One websocket as its handler sees it, from its opening handshake on. `websocket_protocol.py` has what its connection
sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..runtime import checkpoint
from .errors import Disconnected, ResponseError
from .exchange import Exchange
from .output import LIMIT
from .state import Reason
from .websocket_protocol import CLOSED, CONNECTING, OPEN, WebSocketProtocol
from .wire import Headers

if TYPE_CHECKING:
    from .wire.frames import Frames

# large messages that are sent without letting other tasks run, if none has to wait
_BUDGET: Final = 16


def open_frames(exchange: Exchange) -> Frames:
    """Return the frames of the websocket that the request of `exchange` asks for. Raise UpgradeRefused if it is not a
    valid handshake, ImportError if the extra `websockets` is not installed."""
    from .wire.frames import negotiate

    return negotiate(exchange.request, exchange.limits, exchange.ws_compression)


class WebSocket(WebSocketProtocol):
    """A websocket as its handler sees it. `frames`: what `open_frames(exchange)` has returned.

    `accept` once; then `receive`, and `try_send` with `finish_send`, from any tasks; and `close`. `closed` is the code
    and reason of the close that came first, the peer's or the server's, once it has begun; 1006 if the connection was
    lost before.
    """

    def __init__(self, exchange: Exchange, frames: Frames) -> None:
        super().__init__(exchange, frames)
        # large messages that may be sent before other tasks must run
        self._budget = _BUDGET

    async def accept(self, subprotocol: str | None, headers: Headers) -> None:
        """Accept the request. Raise ResponseError for a subprotocol that was not offered, an invalid field, or if a
        response was started; Disconnected if the peer is gone."""
        fields = self._frames.response(subprotocol, headers)
        await self._exchange.upgrade(self, fields)

    async def receive(self) -> str | bytes | None:
        """Return the next message, None once the websocket is closing and all messages were received. A checkpoint only
        if it waits, in a long turn of the event loop, and at the end."""
        inbox = self._inbox
        if len(inbox) and self._host.turn_is_long():
            await checkpoint()
        while not len(inbox):
            if self.state != OPEN:
                self._exchange.note_told()
                await checkpoint()
                return None
            await inbox.wait(self._host.loop, self._exchange)
        was_full = self.full
        message = inbox.pop()
        if was_full and not self.full and self.state == OPEN:
            self._deadlines.begin_again(self._host.clock.now())
            self._arm_before(self._next()[0])
            self._host.read_on()
        return message

    def try_send(self, message: str | bytes) -> bool:
        """Send a message, if that needs no wait. If this returns False, the caller must call `finish_send()` at once
        and await it.

        Raise ResponseError before `accept` and after `close`, Disconnected if the peer is gone.
        """
        self._require_open()
        host = self._host
        piece, large = self._frames.message(message)
        host.output.append(piece, large)
        if host.flush_soon(True):
            return True
        self._budget -= 1
        # a large message that was sent at once need not let other tasks run every time
        return self._budget > 0 and not (host.output.size or host.turn_is_long())

    async def finish_send(self) -> None:
        """Wait until at most 64 KiB are pending. A checkpoint. Raise Disconnected if the peer is gone without a close,
        or did not read in time."""
        output = self._host.output
        self._budget = _BUDGET
        if output.size > LIMIT:
            await output.wait(LIMIT)
        else:
            await checkpoint()
        # a peer that has sent a close frame may have read everything before
        if self.state == CLOSED and not self._closed_by_handler and self._frames.peer_closed is None:
            raise Disconnected("the peer of the websocket is gone, or did not read in time")

    def close(self, code: int, reason: str) -> None:
        """Begin the closing handshake. Raise as `try_send`, and ResponseError for an invalid code or reason."""
        self._require_open()
        self._frames.close(code, reason)
        self._closed_by_handler = True
        self._begin_close(Reason.DONE, code, reason)

    def _require_open(self) -> None:
        if self.state != OPEN:
            if self.state == CONNECTING:
                raise ResponseError("the websocket was not accepted")
            if self._closed_by_handler:
                raise ResponseError("the websocket was closed by the application")
            raise Disconnected("the peer of the websocket is gone, or the server has ended the websocket")
