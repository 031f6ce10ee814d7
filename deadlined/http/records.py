"""The records that an observer is given: small and frozen, in seconds and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ..value import Value
from .state import Phase, Reason, Refusal

# bytes of a header field in a record; the user agents of browsers have up to 200
LONGEST_VALUE: Final = 256


@dataclass(frozen=True, slots=True)
class RequestRecord(Value):
    """One request that was handled.

    `peer`: the client's address and port, also if a proxy has told it. `status`: 0 if nothing was answered. `received`,
    `sent`: bytes of HTTP of this request and of its response. `head`: seconds from the beginning of the request to the
    end of its head. `handled`: seconds from there until the connection was done with the request; what a detached
    handler does later does not count. `reason`: why the connection ended with this request, None if it goes on.
    `fields`: name and value of the header fields that `HttpServer(recorded_fields=...)` names and the request has.
    `refused`: why it was answered with 503 in place of its handler, None if it was not.
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
    fields: tuple[tuple[str, str], ...] = ()
    refused: Refusal | None = None


@dataclass(frozen=True, slots=True)
class ConnectionRecord(Value):
    """One connection that ended in `phase`, for `reason`. `elapsed`: seconds from its accept to its end. `lateness`:
    seconds by which the deadline that cut it was late, 0.0 if no deadline did. `received`, `sent`: bytes of HTTP. After
    a TLS handshake that timed out, `received` is the length of the first read of the handshake, 0 if nothing came."""

    peer: str
    reason: Reason
    phase: Phase
    elapsed: float
    lateness: float
    requests: int
    received: int
    sent: int


@dataclass(frozen=True, slots=True)
class ConnectionInfo(Value):
    """One connection that is open now. `age`, and `left` until its deadline (`inf` if it has none), in seconds."""

    id: int
    peer: str
    phase: Phase
    age: float
    left: float
    requests: int


class Observer(Protocol):
    """An object of the application that is given a record of every request and of every connection, once each, when
    it is over. Those of routes that are not observed are left out, and so are connections that had no other requests,
    unless they were cut or refused in the head of a further one.

    Any object with these methods will do. Do not derive its class from this one: where the package is compiled, that is
    a TypeError.

    The methods are called synchronously, so they must be short. What they raise is logged and has no other effect.
    """

    def request(self, record: RequestRecord) -> None:
        """Take the record of a request that was handled, or whose connection was cut."""

    def connection(self, record: ConnectionRecord) -> None:
        """Take the record of a connection that has ended."""


def recorded(headers: Sequence[tuple[bytes, bytes]], names: Iterable[bytes]) -> tuple[tuple[str, str], ...]:
    """Return the header fields of these names, which are in lower case, without those that are absent.

    The values of a field that is given several times are joined. A value that is longer than LONGEST_VALUE is cut, and
    ends with `...`.
    """
    found = []
    for name in names:
        values = [value for given, value in headers if given == name]
        if values:
            value = b", ".join(values)
            text = value if len(value) <= LONGEST_VALUE else value[:LONGEST_VALUE] + b"..."
            found.append((name.decode("latin-1"), text.decode("latin-1")))
    return tuple(found)
