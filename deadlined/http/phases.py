"""The life of a connection as a table: what each phase waits for, by when, and what its expiry means.

Pure data and pure functions. The connection follows the table and decides nothing of this kind itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .timeouts import Timeouts

# seconds beyond the advertised idle timeout before we close: a client that reuses the connection in the last moment
# wins the race (Node's keepAliveTimeoutBuffer)
IDLE_BUFFER: Final = 1.0

# seconds that a connection may take to read our last words before it is closed under it; Go's rstAvoidanceDelay is 0.5
# and nginx's lingering_timeout 5
LINGER: Final = 2.0

# seconds that a connection which has said nothing yet is given when a drain begins: its request may be on the way (Go)
NEW_GRACE: Final = 5.0

# seconds that a peer may take nothing at all of a send, however long the send is and so its deadline; twice Envoy's
# stream_idle_timeout, because a peer that keeps 240 B/s needs minutes for what the kernel buffers between two signs of
# progress
STALL: Final = 600.0

# fraction by which connection_age is spread, so that a fleet of clients does not reconnect at once
AGE_JITTER: Final = 0.1


class Phase(StrEnum):
    """What a connection is doing."""

    HANDSHAKE = "handshake"
    HEADER = "header"
    BODY = "body"
    HANDLER = "handler"
    WRITE = "write"
    IDLE = "idle"
    DRAIN = "drain"


class Reason(StrEnum):
    """Why a connection ended: every connection ends with exactly one."""

    HANDSHAKE_TIMEOUT = "handshake_timeout"
    HEADER_TIMEOUT = "header_timeout"
    READ_TIMEOUT = "read_timeout"
    BODY_RATE = "body_rate"
    WRITE_TIMEOUT = "write_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    HANDLER_TIMEOUT = "handler_timeout"
    CONNECTION_AGE = "connection_age"
    DRAIN_TIMEOUT = "drain_timeout"
    CLIENT_CLOSED = "client_closed"
    CLIENT_RESET = "client_reset"
    PROTOCOL_ERROR = "protocol_error"
    HEADER_TOO_LARGE = "header_too_large"
    KEEPALIVE_LIMIT = "keepalive_limit"
    SERVER_ERROR = "server_error"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Rule:
    """One deadline. `side`: which waiting it ends ("read", "write", "task", or "none" if it only marks the next
    response).

    `status` is answered if nothing was answered yet and, where `needs_byte`, the peer has sent something. `reset` says
    that what cannot be answered is cut by an RST instead of a close. `app` is what the application notices.
    """

    field: str
    phase: Phase
    side: str
    starts: str
    extended_by: str
    reason: Reason
    status: int | None
    needs_byte: bool
    reset: bool
    app: str


RULES: Final[dict[str, Rule]] = {
    rule.field: rule
    for rule in (
        Rule(
            "handshake", Phase.HANDSHAKE, "read", "accept", "nothing",
            Reason.HANDSHAKE_TIMEOUT, None, False, False, "not run",
        ),
        Rule(
            "read_header", Phase.HEADER, "read", "accept or handshake; the first byte of a next request", "nothing",
            Reason.HEADER_TIMEOUT, 408, True, False, "not run",
        ),
        Rule(
            "read", Phase.BODY, "read", "as read_header", "nothing",
            Reason.READ_TIMEOUT, 408, True, False, "receive fails",
        ),
        Rule(
            "body_grace", Phase.BODY, "read", "end of the head", "received / body_min_rate",
            Reason.BODY_RATE, 408, True, False, "receive fails",
        ),
        Rule(
            "write_grace", Phase.WRITE, "write", "each send", "length / write_min_rate, if that is more",
            Reason.WRITE_TIMEOUT, None, False, True, "cancelled",
        ),
        Rule(
            "write", Phase.WRITE, "write", "end of the head", "nothing",
            Reason.WRITE_TIMEOUT, None, False, True, "cancelled",
        ),
        Rule(
            "idle", Phase.IDLE, "read", "response done", "nothing",
            Reason.IDLE_TIMEOUT, None, False, False, "not run",
        ),
        Rule(
            "handler", Phase.HANDLER, "task", "end of the head", "nothing",
            Reason.HANDLER_TIMEOUT, 504, False, True, "cancelled",
        ),
        Rule(
            "connection_age", Phase.IDLE, "none", "accept", "nothing",
            Reason.CONNECTION_AGE, None, False, False, "nothing",
        ),
        Rule(
            "drain", Phase.DRAIN, "task", "shutdown", "nothing",
            Reason.DRAIN_TIMEOUT, None, False, True, "cancelled",
        ),
    )
}  # fmt: skip


# what an answer says of the deadline that it is for, to a person
DETAILS: Final = {
    "read_header": "the request's head was not complete in time",
    "read": "the request was not complete in time",
    "body_grace": "the request's body came too slowly",
    "handler": "the application did not answer in time",
}


@dataclass(frozen=True, slots=True)
class Farewell:
    """What the peer sees of the end: an answer with `status` and then a close, a bare close, or a reset."""

    status: int | None = None
    reset: bool = False


def farewell(rule: Rule, *, byte_came: bool, answered: bool) -> Farewell:
    """What is owed to the peer when `rule`'s deadline has passed."""
    if answered:
        return Farewell(reset=rule.reset)
    if rule.status is not None and (byte_came or not rule.needs_byte):
        return Farewell(rule.status)
    return Farewell(reset=rule.reset)


def handshake_deadline(accepted: float, timeouts: Timeouts) -> float:
    """When the TLS handshake must be done."""
    return accepted + timeouts.handshake


def header_deadline(start: float, timeouts: Timeouts) -> tuple[float, Rule]:
    """When the head must be complete, and which deadline that is."""
    if timeouts.read < timeouts.read_header:
        return start + timeouts.read, RULES["read"]
    return start + timeouts.read_header, RULES["read_header"]


def body_deadline(start: float, head_done: float, received: int, timeouts: Timeouts) -> tuple[float, Rule]:
    """When the next bytes of the body must be there, after `received` of them (Apache's formula), and why."""
    whole = start + timeouts.read
    rate = head_done + timeouts.body_grace + received / timeouts.body_min_rate
    return (whole, RULES["read"]) if whole < rate else (rate, RULES["body_grace"])


def write_deadline(now: float, head_done: float, length: int, timeouts: Timeouts) -> tuple[float, Rule]:
    """When `length` bytes that are sent now must be taken (Kestrel's formula), and why."""
    whole = head_done + timeouts.write
    send = now + max(timeouts.write_grace, length / timeouts.write_min_rate)
    return (whole, RULES["write"]) if whole < send else (send, RULES["write_grace"])


def stall_deadline(progress: float, timeouts: Timeouts) -> float:
    """When a peer that has last taken something of a send at `progress` must take more. Off with `write_grace`."""
    return progress + max(STALL, timeouts.write_grace)


def idle_deadline(done: float, timeouts: Timeouts) -> float:
    """When an idle connection is closed: a little later than it was told."""
    return done + timeouts.idle + IDLE_BUFFER


def handler_deadline(head_done: float, timeouts: Timeouts) -> float:
    """When the application must have returned."""
    return head_done + timeouts.handler


def age_deadline(accepted: float, jitter: float, timeouts: Timeouts) -> float:
    """From when on a response says `Connection: close`. `jitter` in -1 to 1 spreads it."""
    return accepted + timeouts.connection_age * (1 + AGE_JITTER * jitter)
