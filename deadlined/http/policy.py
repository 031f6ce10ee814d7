"""Which deadline holds when, and what its expiry means: a table and pure functions.

The connection asks and then performs the answer; it decides nothing of this kind itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .errors import BadRequest
from .state import NONE, SENT, STARTED, Phase, Reason
from .timeouts import Limits, Timeouts

# seconds beyond the advertised idle timeout before the server closes: a client that reuses the connection in the last
# moment wins the race (Node's keepAliveTimeoutBuffer)
IDLE_BUFFER: Final = 1.0

# seconds of a lingering close: how long the peer may take to read the last response. Go's rstAvoidanceDelay is 0.5,
# nginx's lingering_timeout 5
LINGER: Final = 2.0

# seconds that a connection which has sent nothing yet is given when a drain begins: its request may be under way (Go)
NEW_GRACE: Final = 5.0

# seconds that an idle connection is given when a drain begins: a request that was sent before may be in the socket
# already, or a moment away
IDLE_GRACE: Final = 0.1

# seconds that a peer may accept no byte of a send, however long the send and so its deadline is. Twice Envoy's
# stream_idle_timeout: a peer that keeps 240 B/s needs minutes for what the kernel buffers between two signs of progress
STALL: Final = 600.0

# fraction by which connection_age is spread, so that a fleet of clients does not reconnect at once
AGE_JITTER: Final = 0.1


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens when the deadline `field` of `Timeouts` passes in `phase`.

    `status` is answered if no response was started and, where `needs_byte`, the peer has sent something. `reset`: what
    cannot be answered is cut by an RST instead of a close. `cancels`: the handler is cancelled. `detail` explains an
    answered status to a person.
    """

    field: str
    phase: Phase
    reason: Reason
    status: int | None = None
    needs_byte: bool = False
    reset: bool = False
    cancels: bool = False
    detail: str = ""


RULES: Final[dict[str, Rule]] = {
    rule.field: rule
    for rule in (
        Rule("handshake", Phase.HANDSHAKE, Reason.HANDSHAKE_TIMEOUT),
        Rule("read_header", Phase.HEADER, Reason.HEADER_TIMEOUT, 408, needs_byte=True,
             detail="the request's head was not complete in time"),
        Rule("read", Phase.BODY, Reason.READ_TIMEOUT, 408, needs_byte=True,
             detail="the request was not complete in time"),
        Rule("body_grace", Phase.BODY, Reason.BODY_RATE, 408, needs_byte=True,
             detail="the request's body came too slowly"),
        Rule("write_grace", Phase.WRITE, Reason.WRITE_TIMEOUT, reset=True, cancels=True),
        Rule("write", Phase.WRITE, Reason.WRITE_TIMEOUT, reset=True, cancels=True),
        Rule("idle", Phase.IDLE, Reason.IDLE_TIMEOUT),
        Rule("handler", Phase.HANDLER, Reason.HANDLER_TIMEOUT, 504, reset=True, cancels=True,
             detail="the application did not answer in time"),
        Rule("connection_age", Phase.IDLE, Reason.CONNECTION_AGE),
        Rule("drain", Phase.DRAIN, Reason.DRAIN_TIMEOUT, reset=True, cancels=True),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Action:
    """What a connection does to end: it ends for `reason`; it answers `status` and closes, or closes, or resets; and it
    cancels the handler or lets it run."""

    reason: Reason
    status: int | None = None
    reset: bool = False
    cancels: bool = False


def on_expiry(rule: Rule, *, byte_came: bool, response: int, dead: bool = False, draining: bool = False) -> Action:
    """What to do when the deadline of `rule` has passed. `byte_came`: the peer has sent something of the request;
    `response` is the state of the response; `dead`: the peer is gone or was told already.

    A draining server ends a connection that has asked nothing without blame.
    """
    if draining and not byte_came and rule.phase in (Phase.HEADER, Phase.IDLE):
        return Action(Reason.DONE)
    if dead and rule.phase is not Phase.DRAIN:
        return Action(rule.reason, cancels=rule.cancels)
    if response == NONE and rule.status is not None and (byte_came or not rule.needs_byte):
        return Action(rule.reason, rule.status, cancels=rule.cancels)
    return Action(rule.reason, None, rule.reset and response != SENT, rule.cancels)


def on_refusal(bad: BadRequest, response: int) -> Action:
    """What to do with a request that cannot be served: answer it, unless a response was started."""
    return Action(bad.reason, bad.status if response == NONE else None)


def on_handler_failure(response: int) -> Action:
    """What to do when a handler has failed: 500, or a reset if the peer could take what it has for the whole."""
    if response == NONE:
        return Action(Reason.SERVER_ERROR, 500)
    return Action(Reason.SERVER_ERROR, reset=response == STARTED)


def is_last(keep_alive: bool, draining: bool, requests: int, limits: Limits, now: float, close_after: float) -> bool:
    """True if the response to the request number `requests` must be its connection's last."""
    return not keep_alive or draining or requests >= limits.max_requests or now >= close_after


def why_last(keep_alive: bool, draining: bool, requests: int, limits: Limits, now: float, close_after: float) -> Reason:
    """The reason of a connection that ends with the response to its request number `requests`."""
    if not keep_alive or draining:
        return Reason.DONE
    if requests >= limits.max_requests:
        return Reason.KEEPALIVE_LIMIT
    return RULES["connection_age"].reason if now >= close_after else Reason.DONE


def handshake_deadline(accepted: float, timeouts: Timeouts) -> float:
    """When the TLS handshake must be done."""
    return accepted + timeouts.handshake


def header_deadline(start: float, timeouts: Timeouts) -> tuple[float, Rule]:
    """When the head must be complete, and which deadline that is."""
    if timeouts.read < timeouts.read_header:
        return start + timeouts.read, RULES["read"]
    return start + timeouts.read_header, RULES["read_header"]


def body_deadline(start: float, head_done: float, received: int, timeouts: Timeouts) -> tuple[float, Rule]:
    """When the next bytes of the body must be there after `received` of them (Apache's formula), and which deadline
    that is."""
    whole = start + timeouts.read
    rate = head_done + timeouts.body_grace + received / timeouts.body_min_rate
    return (whole, RULES["read"]) if whole < rate else (rate, RULES["body_grace"])


def write_deadline(now: float, head_done: float, length: int, timeouts: Timeouts) -> tuple[float, Rule]:
    """When the peer must have accepted `length` bytes that are sent now (Kestrel's formula), and which deadline that
    is."""
    whole = head_done + timeouts.write
    send = now + max(timeouts.write_grace, length / timeouts.write_min_rate)
    return (whole, RULES["write"]) if whole < send else (send, RULES["write_grace"])


def stall_deadline(progress: float, timeouts: Timeouts) -> float:
    """When a peer that last accepted bytes of a send at `progress` must accept more. Off with `write_grace`."""
    return progress + max(STALL, timeouts.write_grace)


def idle_deadline(done: float, timeouts: Timeouts) -> float:
    """When an idle connection is closed: a little later than was advertised."""
    return done + timeouts.idle + IDLE_BUFFER


def handler_deadline(head_done: float, timeouts: Timeouts) -> float:
    """When the handler must have returned."""
    return head_done + timeouts.handler


def age_deadline(accepted: float, jitter: float, timeouts: Timeouts) -> float:
    """From when on a response says `Connection: close`. `jitter` in -1 to 1 spreads it."""
    return accepted + timeouts.connection_age * (1 + AGE_JITTER * jitter)
