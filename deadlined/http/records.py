"""What the HTTP rooms tell an observer: small frozen facts, in seconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .phases import Phase, Reason

if TYPE_CHECKING:
    from .connection import HttpConnection
    from .exchange import Exchange


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that was handled. `status` 0: nothing was answered. `head`, `handled`: seconds that reading the head
    and handling took, without what ran on after the response. `reason`: why the connection ended with it, None if it
    goes on."""

    peer: str
    method: str
    target: str
    version: str
    status: int
    received: int
    sent: int
    head: float
    handled: float
    reason: Reason | None


def request_record(exchange: Exchange, received: int, sent: int) -> RequestRecord:
    """Of a request whose handling is over just now; before it, its connection had received and sent so much."""
    link, request = exchange.link, exchange.request
    return RequestRecord(
        peer=link.peer,
        method=request.method,
        target=request.target.decode("ascii"),
        version=request.version,
        status=exchange.status,
        received=link.transport.received - received,
        sent=link.transport.sent - sent,
        head=exchange.head_done - exchange.start_time,
        handled=link.clock.now() - exchange.head_done,
        reason=link.reason,
    )


@dataclass(frozen=True, slots=True)
class ConnectionRecord:
    """One connection that ended, in `phase`, for `reason`. `elapsed` since accept; `lateness` of the deadline that cut
    it, 0.0 if none did."""

    peer: str
    reason: Reason
    phase: Phase
    elapsed: float
    lateness: float
    requests: int
    received: int
    sent: int


def connection_record(connection: HttpConnection, ended: float, lateness: float) -> ConnectionRecord:
    """Of a connection that ended at that time."""
    return ConnectionRecord(
        peer=connection.peer,
        reason=connection.reason or Reason.SERVER_ERROR,
        phase=connection.phase,
        elapsed=ended - connection.accepted,
        lateness=lateness,
        requests=connection.requests,
        received=connection.transport.received,
        sent=connection.transport.sent,
    )


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """One connection that is open now. `age` and `left` (until its deadline, `inf` if it has none) in seconds."""

    id: int
    peer: str
    phase: Phase
    age: float
    left: float
    requests: int


class Observer(Protocol):
    """Is told of every request and every connection, once, when it is over.

    Called synchronously: be short. What it raises is logged, and ends the connection.
    """

    def request(self, record: RequestRecord) -> None:
        """A request was handled, or its connection cut."""

    def connection(self, record: ConnectionRecord) -> None:
        """A connection ended."""
