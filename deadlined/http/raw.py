"""A connection that is another protocol's from its first byte.

Facts      In some protocols the server speaks first (SMTP, SSH, MySQL). No client of them understands HTTP.
Hazard     A server that waits for the first byte of its client would wait for ever. A byte of HTTP, sent in the
           server's own name or by a handler that was written for HTTP, would be taken for the protocol's.
Answer     The connection has a task at once. Its handler gets one constant request, which is no request to the counts
           and the observer, and hands the connection over by `Exchange.hand_over`. Nothing is received before. Where
           HTTP would be answered in the server's own name, the connection is reset. A handler that responds gets an
           error.
Cost       What an exchange costs, once per connection.
"""

from __future__ import annotations

from typing import Final

from ..net import Conn
from .connection import Connection
from .dates import DateLine
from .errors import ResponseError
from .exchange import Exchange
from .owner import ConnectionOwner
from .policy import Action
from .settings import Settings
from .state import HANDSHAKE, Reason
from .wire import Headers, Request, ResponseWriter

# what the handler of every raw connection is given
_REQUEST: Final = Request(
    method="TCP",
    target=b"connection",
    path_and_query=b"*",
    version="",
    headers=[],
    content_length=None,
    chunked=False,
    keep_alive=False,
    expects_continue=False,
)


_NO_RESPONSE: Final = "a raw connection has no response: hand it over with `Exchange.hand_over`"


class RawWriter(ResponseWriter):
    """The response of a raw connection, of which there is none: what would write a byte of it raises ResponseError."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_REQUEST.method, _REQUEST.version, True)

    def start(self, status: int, headers: Headers) -> None:
        raise ResponseError(_NO_RESPONSE)

    def switch(self, headers: Headers, date: bytes) -> bytes:
        raise ResponseError(_NO_RESPONSE)

    def body(self, data: bytes, more: bool, date: bytes, keep_alive: bytes) -> tuple[bytes, bytes, bytes]:
        raise ResponseError(_NO_RESPONSE)

    def hand_over(self) -> None:
        if self.complete:
            raise ResponseError("the connection was handed over already")
        # to the exchange, this is an upgrade
        self._status = 101
        self.started = self.complete = True


class RawConnection(Connection):
    """A connection of a server that was made with `raw=True`."""

    def start(self) -> None:
        """Ask for a task; with TLS once the first bytes of its handshake have come."""
        if self.state == HANDSHAKE:
            super().start()
        else:
            self._owner.schedule(self)

    def _become_unattended(self) -> bool:
        """Wait without a task for the TLS handshake, and for nothing after it."""
        return self.state == HANDSHAKE and super()._become_unattended()

    def _resume_idle(self) -> None:
        """Do nothing: the server may be the first to send."""

    def _buffered_request(self) -> Request | None:
        return _REQUEST

    def _begin_exchange(self, request: Request, now: float) -> Exchange:
        exchange = super()._begin_exchange(request, now)
        exchange.writer = RawWriter()
        # its record does not count the constant request
        self.requests = 0
        return exchange

    def _peer_ended_side(self, exchange: Exchange) -> None:
        """Do nothing: a client that sends no more may wait for an answer, for as long as its protocol allows."""

    def _release_exchange(self, exchange: Exchange) -> None:
        """Record that the exchange is over. The record of the connection says all."""
        exchange.kill()
        self._exchange = None

    def _answer(self, status: int, detail: str) -> None:
        """Reset the connection: nothing can be said in the server's own name."""
        self._perform(Action(self.reason or Reason.SERVER_ERROR, reset=True), detail)


def new_connection(settings: Settings, conn: Conn, number: int, owner: ConnectionOwner, dates: DateLine) -> Connection:
    """Make a connection, which is another protocol's if `settings.raw`."""
    # not by way of a variable: compiled code calls a class that it knows without Python's calling convention
    if settings.raw:
        return RawConnection(settings, conn, number, owner, dates)
    return Connection(settings, conn, number, owner, dates)
