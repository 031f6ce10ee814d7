"""What the HTTP rooms tell an observer: small frozen facts, in seconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .phases import Phase, Reason


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that was handled. `status` 0: nothing was answered. `head`, `handled`: seconds that reading the
    head and
    handling took. `reason`: why the connection ended with it, None if it goes on."""

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
    """One connection that ended, in `phase`, for `reason`. `elapsed` since accept; `lateness` of the deadline that
    cut it, 0.0 if
    none did."""

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
    """One connection that is open now. `age` and `left` (until its deadline, `inf` if it has none) in seconds."""

    id: int
    peer: str
    phase: Phase
    age: float
    left: float
    requests: int


class Observer(Protocol):
    """Is told of every request and every connection, once, when it is over. Called synchronously: be short."""

    def request(self, record: RequestRecord) -> None:
        """A request was handled, or its connection cut."""

    def connection(self, record: ConnectionRecord) -> None:
        """A connection ended."""
