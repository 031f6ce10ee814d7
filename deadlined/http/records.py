"""What an observer is told: small frozen facts, in seconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .state import Phase, Reason


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that was handled.

    `status` 0: nothing was answered. `received`, `sent`: bytes of this request and its response on the wire. `head`,
    `handled`: seconds that reading the head and handling took; what a handler does after its response does not count.
    `reason`: why the connection ended with this request, None if it goes on.
    """

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


@dataclass(frozen=True, slots=True)
class ConnectionRecord:
    """One connection that ended in `phase`, for `reason`. `elapsed`: seconds since it was accepted; `lateness`: seconds
    by which the deadline that cut it was late, 0.0 if none did."""

    peer: str
    reason: Reason
    phase: Phase
    elapsed: float
    lateness: float
    requests: int
    received: int
    sent: int


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """One connection that is open now. `age`, and `left` until its deadline (`inf` if it has none), in seconds."""

    id: int
    peer: str
    phase: Phase
    age: float
    left: float
    requests: int


class Observer(Protocol):
    """Is told of every request and of every connection, once, when it is over.

    Called synchronously, so it must be short. What it raises is logged and has no other effect.
    """

    def request(self, record: RequestRecord) -> None:
        """Called when a request was handled, or its connection was cut."""

    def connection(self, record: ConnectionRecord) -> None:
        """Called when a connection ended."""
