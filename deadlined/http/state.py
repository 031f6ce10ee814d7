"""The states of a connection and of an exchange, the events that change them, and what may hold at the same time.

Two rules hold for every connection:

1. It is in exactly one state, and only `next_state` says which one follows. An event that the table does not list is a
   bug in this package and raises AssertionError.
2. It has a `Reason` exactly if its state is `CLOSING` or `CLOSED`.

Beside its state a connection has an attendance: it waits for a worker, a worker runs it, it is unattended and has no
task, or it has none while its output is sent. `may_be_unattended` and `may_be_sending` say in which states.

States and events are small integers, not enums: compiled code then compares them in one instruction, and a connection
changes its state four times per request. `diagram` draws the table for docs/http.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """What a connection waits for. Logs, metrics and the table of deadlines use these names. CLOSING is what follows
    the phase in which a connection has ended: no record has it."""

    HANDSHAKE = "handshake"
    HEADER = "header"
    BODY = "body"
    HANDLER = "handler"
    WRITE = "write"
    IDLE = "idle"
    DRAIN = "drain"
    WEBSOCKET = "websocket"
    TUNNEL = "tunnel"
    CLOSING = "closing"


class Reason(StrEnum):
    """Why a connection ended. Every connection ends with exactly one reason."""

    HANDSHAKE_TIMEOUT = "handshake_timeout"
    HEADER_TIMEOUT = "header_timeout"
    READ_TIMEOUT = "read_timeout"
    BODY_RATE = "body_rate"
    WRITE_TIMEOUT = "write_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    HANDLER_TIMEOUT = "handler_timeout"
    CONNECTION_AGE = "connection_age"
    DRAIN_TIMEOUT = "drain_timeout"
    PONG_TIMEOUT = "pong_timeout"
    CLOSE_TIMEOUT = "close_timeout"
    CLIENT_CLOSED = "client_closed"
    CLIENT_RESET = "client_reset"
    PROTOCOL_ERROR = "protocol_error"
    HEADER_TOO_LARGE = "header_too_large"
    MESSAGE_TOO_LARGE = "message_too_large"
    KEEPALIVE_LIMIT = "keepalive_limit"
    SERVER_ERROR = "server_error"
    UPSTREAM_FAILED = "upstream_failed"
    DONE = "done"


class Refusal(StrEnum):
    """Why a request was answered with 503 in place of its handler. Logs and metrics use these names."""

    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    CLIENT_LEFT = "client_left"


# States of a connection, in this order: in CLOSING and CLOSED no further request is served.
HANDSHAKE: Final = 0  # the TLS handshake is under way
HEAD: Final = 1  # waits for a head: all of it on a new connection, the rest of it on one that was idle
EXCHANGE: Final = 2  # a handler runs, and the connection depends on it
FINISHING: Final = 3  # the handler has returned, failed or is detached; the rest of the body is discarded
IDLE: Final = 4  # between two requests; left as soon as bytes of the next one are noticed
UPGRADED: Final = 5  # another protocol has the connection's bytes, with or without the handler
CLOSING: Final = 6  # the reason is known; the peer may still have to be told
CLOSED: Final = 7

STATES: Final = ("HANDSHAKE", "HEAD", "EXCHANGE", "FINISHING", "IDLE", "UPGRADED", "CLOSING", "CLOSED")

# Events of a connection
HANDSHAKE_DONE: Final = 0
REQUEST_READ: Final = 1
HANDLER_LEFT: Final = 2  # it returned, failed or was detached
EXCHANGE_DONE: Final = 3  # the response is sent, the body is read, and the connection can be used again
BYTES_CAME: Final = 4  # the first bytes of the next request were read
PROTOCOL_SWITCHED: Final = 5  # the handler has answered 101 (RFC 9110, 7.8)
ENDED: Final = 6  # the connection got its reason
TRANSPORT_CLOSED: Final = 7

EVENTS: Final = (
    "HANDSHAKE_DONE",
    "REQUEST_READ",
    "HANDLER_LEFT",
    "EXCHANGE_DONE",
    "BYTES_CAME",
    "PROTOCOL_SWITCHED",
    "ENDED",
    "TRANSPORT_CLOSED",
)

TRANSITIONS: Final = {
    (HANDSHAKE, HANDSHAKE_DONE): HEAD,
    (HANDSHAKE, ENDED): CLOSING,
    (HEAD, REQUEST_READ): EXCHANGE,
    (HEAD, ENDED): CLOSING,
    (EXCHANGE, HANDLER_LEFT): FINISHING,
    (EXCHANGE, PROTOCOL_SWITCHED): UPGRADED,
    (EXCHANGE, ENDED): CLOSING,
    (FINISHING, EXCHANGE_DONE): IDLE,
    (FINISHING, ENDED): CLOSING,
    (IDLE, BYTES_CAME): HEAD,
    (IDLE, ENDED): CLOSING,
    (UPGRADED, ENDED): CLOSING,
    (CLOSING, TRANSPORT_CLOSED): CLOSED,
}

# Attendance of a connection
QUEUED: Final = 0  # a worker will run it
RUNNING: Final = 1  # a worker runs it
UNATTENDED: Final = 2  # no task; the poller calls `on_ready`, or a Responder answers the exchange
SENDING: Final = 3  # no task; the poller calls its output until all is sent, and the connection goes on then

# What the poller's next call of a connection is for, while a handler runs or another protocol has the bytes
NO_CALL: Final = 0  # none will come for that
WATCH: Final = 1  # the peer may have sent something or left, and nothing is read now
READ: Final = 2  # bytes for the protocol have come

# Body of an exchange, as it is received
EXPECT_100: Final = 0  # the client waits for `100 Continue` before it sends the body
OPEN: Final = 1
DONE: Final = 2  # its end was read, or the request has none

# Response of an exchange
NONE: Final = 0
STARTED: Final = 1  # the head was sent or queued
SENT: Final = 2  # complete; see `ReceivingExchange.response`

# Link of an exchange to its connection
LIVE: Final = 0
DETACHED: Final = 1  # the response is sent or given up; the connection goes on while the handler still runs
DEAD: Final = 2  # cut off: the peer is gone, the server has answered in its own name, or the exchange is over

_ILLEGAL: Final = -1
_EVENT_COUNT: Final = 8
_NEXT: Final[list[int]] = [
    TRANSITIONS.get((state, event), _ILLEGAL) for state in range(len(STATES)) for event in range(_EVENT_COUNT)
]


def next_state(state: int, event: int) -> int:
    """Return the state that follows `state` after `event`. Raise AssertionError if the table lists none."""
    following = _NEXT[state * _EVENT_COUNT + event]
    if following == _ILLEGAL:
        raise AssertionError(f"{EVENTS[event]} in state {STATES[state]}")
    return following


def may_be_unattended(state: int, byte_came: bool, responds: bool = False) -> bool:
    """Return True if the connection may be unattended: it is idle or new, and no byte of the handshake or of the next
    request was read; or a Responder answers (`responds`); or another protocol has it, which the poller calls."""
    if state == EXCHANGE:
        return responds
    return state == UPGRADED or (state in (IDLE, HEAD, HANDSHAKE) and not byte_came)


def may_be_sending(state: int) -> bool:
    """Return True if the connection may wait without a task until its output is sent: it is idle then, or nothing is
    left to do but to close."""
    return state in (FINISHING, IDLE)


def is_detachable(response: int, link: int, receiving: bool) -> bool:
    """Return True if the connection can go on, or end, while the handler still runs: the response is complete or can
    not be given any more, and no task of the handler waits for more of the body."""
    return (response == SENT or link == DEAD) and link != DETACHED and not receiving


def is_reusable(body: int, response: int, link: int) -> bool:
    """Return True if the body is read and the response is complete, so that the next bytes are the next request."""
    return body == DONE and response == SENT and link != DEAD


def diagram() -> str:
    """Draw the table of transitions as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> HANDSHAKE: accepted, with TLS", "    [*] --> HEAD: accepted"]
    lines += [
        f"    {STATES[state]} --> {STATES[following]}: {EVENTS[event].lower()}"
        for (state, event), following in TRANSITIONS.items()
    ]
    return "\n".join([*lines, "    CLOSED --> [*]"])
