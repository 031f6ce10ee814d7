"""The states of a connection and of an exchange, the events that change them, and what may hold at the same time.

Two rules carry the HTTP floor:

1. A connection is in exactly one state, and only `next_state` says which one follows. An event that the table does not
   list is a bug in this package and raises AssertionError.
2. `CLOSING` and `CLOSED` are the states of a connection that has a `Reason`; no other state has one.

Beside its state a connection has an attendance: whether a worker runs it, whether it waits for one, or whether it is
unattended, which costs no task. `may_be_unattended` joins the two.

States and events are small integers, not enums: compiled code then compares them in one instruction, and a connection
changes its state four times per request. `diagram` draws the table for docs/http.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """What a connection waits for, as logs, metrics and the table of deadlines name it."""

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


# States of a connection. Those from CLOSING on serve no further request.
HANDSHAKE: Final = 0  # TLS is being set up
HEAD: Final = 1  # a request's head is awaited: on a new connection, or after the first byte of a next request
EXCHANGE: Final = 2  # a handler runs
FINISHING: Final = 3  # the handler has returned or is detached; what is left of the request is read
IDLE: Final = 4  # between two requests; nothing of the next one has come
CLOSING: Final = 5  # the reason is known; the peer may still have to be told
CLOSED: Final = 6

STATES: Final = ("HANDSHAKE", "HEAD", "EXCHANGE", "FINISHING", "IDLE", "CLOSING", "CLOSED")

# Events of a connection
HANDSHAKE_DONE: Final = 0
REQUEST_READ: Final = 1
HANDLER_LEFT: Final = 2  # it returned, failed or was detached
EXCHANGE_DONE: Final = 3  # the response is sent, the body is read, and the connection can be used again
BYTES_CAME: Final = 4  # the first of a next request
ENDED: Final = 5  # for a reason
TRANSPORT_CLOSED: Final = 6

EVENTS: Final = (
    "HANDSHAKE_DONE",
    "REQUEST_READ",
    "HANDLER_LEFT",
    "EXCHANGE_DONE",
    "BYTES_CAME",
    "ENDED",
    "TRANSPORT_CLOSED",
)

TRANSITIONS: Final = {
    (HANDSHAKE, HANDSHAKE_DONE): HEAD,
    (HANDSHAKE, ENDED): CLOSING,
    (HEAD, REQUEST_READ): EXCHANGE,
    (HEAD, ENDED): CLOSING,
    (EXCHANGE, HANDLER_LEFT): FINISHING,
    (EXCHANGE, ENDED): CLOSING,
    (FINISHING, EXCHANGE_DONE): IDLE,
    (FINISHING, ENDED): CLOSING,
    (IDLE, BYTES_CAME): HEAD,
    (IDLE, ENDED): CLOSING,
    (CLOSING, TRANSPORT_CLOSED): CLOSED,
}

# Attendance of a connection
QUEUED: Final = 0  # a worker will run it
RUNNING: Final = 1  # a worker runs it
UNATTENDED: Final = 2  # no task; the poller calls it

# An exchange: its body, its response, and its link to the connection
EXPECT_100: Final = 0  # the client waits for `100 Continue` before it sends the body
OPEN: Final = 1
DONE: Final = 2

NONE: Final = 0
STARTED: Final = 1  # the head has left
SENT: Final = 2  # the last byte has left

LIVE: Final = 0
DETACHED: Final = 1  # the connection went on without the handler, which still runs
DEAD: Final = 2  # the peer can neither be heard nor told anything

_ILLEGAL: Final = -1
_EVENT_COUNT: Final = 7
_NEXT: Final[list[int]] = [
    TRANSITIONS.get((state, event), _ILLEGAL) for state in range(len(STATES)) for event in range(_EVENT_COUNT)
]


def next_state(state: int, event: int) -> int:
    """Return the state after `event`. AssertionError if the table has none."""
    following = _NEXT[state * _EVENT_COUNT + event]
    if following == _ILLEGAL:
        raise AssertionError(f"{EVENTS[event]} in state {STATES[state]}")
    return following


def may_be_unattended(state: int, byte_came: bool) -> bool:
    """True if the connection may wait without a task: between requests, and before the first byte of the first one."""
    return state in (IDLE, HEAD) and not byte_came


def is_detachable(response: int, link: int, receiving: bool) -> bool:
    """True if the connection can go on, or end, while the handler still runs: the response is out, and no task of the
    handler waits for more of the body."""
    return response == SENT and link != DETACHED and not receiving


def is_reusable(body: int, response: int, link: int) -> bool:
    """True if nothing of the exchange is left on the wire, so that the next bytes are a next request."""
    return body == DONE and response == SENT and link != DEAD


def diagram() -> str:
    """Draw the table of transitions as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> HANDSHAKE: accepted, with TLS", "    [*] --> HEAD: accepted"]
    lines += [
        f"    {STATES[state]} --> {STATES[following]}: {EVENTS[event].lower()}"
        for (state, event), following in TRANSITIONS.items()
    ]
    return "\n".join([*lines, "    CLOSED --> [*]"])
