"""Which deadline applies when, and what its expiry means: a table and pure functions.

The functions only decide. The connection calls them and does what they return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..value import Value
from .errors import BadRequest, ResponseCut
from .state import NONE, SENT, Phase, Reason
from .timeouts import Limits, Timeouts

# seconds between the advertised idle timeout and the close, so that a request sent at the last moment is still served
# (Node's keepAliveTimeoutBuffer)
IDLE_BUFFER: Final = 1.0

# seconds for which a lingering close reads on, so that the peer can read the last response; sending that response may
# take twice as long. Go's rstAvoidanceDelay is 0.5, nginx's lingering_timeout 5
LINGER: Final = 2.0

# bytes per second that prolong a lingering close, up to LINGER_MOST: many clients read a response only after all of
# their request was sent. nginx's lingering_time and Apache's MAX_SECS_TO_LINGER are 30
LINGER_RATE: Final = 64 * 1024
LINGER_MOST: Final = 30.0

# seconds from the beginning of a drain until a connection must have sent the head of its request: that may be under way
# (Go's Shutdown waits as long). With the close that follows, a drain that has nothing else to wait for is over before
# Docker kills, ten seconds after its signal
NEW_GRACE: Final = 5.0

# seconds that a drain leaves to an idle connection at least: a request that was sent before may be in the socket, or
# arrive at once
IDLE_GRACE: Final = 0.1

# seconds since its last response for which a drain keeps an idle connection: its client is likely to send again, and
# would lose what it sends into the close (nginx's keepalive_min_timeout). Half a second above the period of a client
# that asks once a second
REUSE_GRACE: Final = 1.5

# seconds that a handler may take to return after its peer has ended its side, or after it was told that the peer is
# gone, or that the server ends the request; then it is cancelled. A client that only ends its own side, as `nc` does,
# gets the answer of a quick handler
DISCONNECT_GRACE: Final = 1.0

# seconds for which a peer may take no byte, even if the deadline of a long send is later; nginx's send_timeout
STALL: Final = 60.0

# seconds between two checks of what the kernel has not sent yet of a send that waits: it makes room for more only after
# a peer that reads slowly has taken much
STALL_CHECK: Final = 5.0

# seconds that a handler may take to return after its websocket has ended, unless it has closed that itself: it learns
# of the end by its next receive or send, and may have much to clean up. Daphne's application_close_timeout
UPGRADE_GRACE: Final = 10.0

# seconds that a drain leaves to the handler of a websocket to close it itself; then it is closed with 1012
DRAIN_NOTICE: Final = 1.0

# fraction by which connection_age is spread, so that a fleet of clients does not reconnect at once
AGE_JITTER: Final = 0.1


# how a handler ends a connection: what it has sent before is worth the time that a response has
BY_HANDLER: Final = (Reason.SERVER_ERROR, Reason.UPSTREAM_FAILED, Reason.DONE)


@dataclass(frozen=True, slots=True)
class Rule(Value):
    """What happens when the deadline `field` of `Timeouts` passes in `phase`.

    `status` is answered if no response was started; if `needs_byte`, only to a peer that has sent something. `reset`:
    a connection that is not answered is reset (RST) instead of closed. `cancels`: the handler is cancelled. `detail`
    is the text of the answer, for people. A websocket is closed with `code` (RFC 6455, 7.4.1), and its handler is told
    instead of cancelled; without a code it is reset or closed.
    """

    field: str
    phase: Phase
    reason: Reason
    status: int | None = None
    needs_byte: bool = False
    reset: bool = False
    cancels: bool = False
    detail: str = ""
    code: int | None = None


RULES: Final[dict[str, Rule]] = {
    rule.field: rule
    for rule in (
        Rule("handshake", Phase.HANDSHAKE, Reason.HANDSHAKE_TIMEOUT),
        Rule("read_header", Phase.HEADER, Reason.HEADER_TIMEOUT, 408, needs_byte=True,
             detail="the request's head was not complete in time"),
        Rule("read", Phase.BODY, Reason.READ_TIMEOUT, 408, needs_byte=True,
             detail="the request was not complete in time", code=1008),
        Rule("body_grace", Phase.BODY, Reason.BODY_RATE, 408, needs_byte=True,
             detail="the request's body came too slowly", code=1008),
        Rule("write_grace", Phase.WRITE, Reason.WRITE_TIMEOUT, reset=True, cancels=True),
        Rule("write", Phase.WRITE, Reason.WRITE_TIMEOUT, reset=True, cancels=True),
        Rule("idle", Phase.IDLE, Reason.IDLE_TIMEOUT),
        Rule("handler", Phase.HANDLER, Reason.HANDLER_TIMEOUT, 504, reset=True, cancels=True,
             detail="the application did not answer in time", code=1011),
        Rule("connection_age", Phase.IDLE, Reason.CONNECTION_AGE, code=1001),
        Rule("drain", Phase.DRAIN, Reason.DRAIN_TIMEOUT, reset=True, cancels=True, code=1012),
        Rule("ws_pong", Phase.WEBSOCKET, Reason.PONG_TIMEOUT, code=1011),
        Rule("ws_close", Phase.WEBSOCKET, Reason.CLOSE_TIMEOUT),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Action(Value):
    """What a connection does to end, for `reason`. With a `status` it answers and closes; otherwise it resets if
    `reset`, else closes. `cancels`: it cancels the handler, which otherwise runs on."""

    reason: Reason
    status: int | None = None
    reset: bool = False
    cancels: bool = False


def on_expiry(
    rule: Rule, *, byte_came: bool, response: int, dead: bool = False, draining: bool = False, spares: bool = False
) -> Action:
    """Decide what to do when the deadline of `rule` has passed. `byte_came`: bytes of the request were received.
    `response`: the state of the response. `dead`: the exchange is cut off, so the peer cannot be told anything;
    what it does not take of a response that leaves all the same is cut by a reset.
    `spares`: a handler is not cancelled for what its client does, and not reading is such a thing.

    While the server drains, a connection on which no request has begun, or whose response is sent, ends for DONE
    instead of a timeout.
    """
    # a head may be late by `read`, a rule of BODY
    if draining and (not byte_came or response == SENT) and rule.phase in (Phase.HEADER, Phase.BODY, Phase.IDLE):
        return Action(Reason.DONE)
    cancels = rule.cancels and not (spares and rule.phase is Phase.WRITE)
    if dead and rule.phase is not Phase.DRAIN:
        return Action(rule.reason, reset=rule.phase is Phase.WRITE, cancels=cancels)
    if response == NONE and rule.status is not None and (byte_came or not rule.needs_byte):
        return Action(rule.reason, rule.status, cancels=cancels)
    return Action(rule.reason, None, rule.reset and response != SENT, cancels)


def on_refusal(bad: BadRequest, response: int) -> Action:
    """Decide what to do with an invalid or too large request: answer it, unless a response was started."""
    return Action(bad.reason, bad.status if response == NONE else None)


def on_handler_failure(
    response: int, cut: ResponseCut | None = None, stopped: bool = False, shows_end: bool = False
) -> Action | None:
    """Decide what to do when a handler has failed: answer 500, or end the connection if a response was started and is
    not complete; reset it, unless the response `shows_end`, because the peer could take the part for the whole. `cut`:
    what it has raised, if its upstream is to blame. `stopped`: it has returned in a drain, which is no failure once the
    response was started.

    None if it is complete: frameworks answer 500 themselves and then raise, and a close that the response has not
    announced would lose the peer's next request.
    """
    if response == SENT:
        return None
    reason = Reason.SERVER_ERROR if cut is None else Reason.UPSTREAM_FAILED
    if response == NONE:
        return Action(reason, 500 if cut is None else cut.status)
    return Action(Reason.DONE if stopped else reason, reset=not shows_end)


def why_last(
    keep_alive: bool, draining: bool, requests: int, limits: Limits, now: float, close_after: float
) -> Reason | None:
    """Return the reason of a connection that must end with the response to its request number `requests`, None if it
    may go on."""
    if not keep_alive or draining:
        return Reason.DONE
    if requests >= limits.max_requests:
        return Reason.KEEPALIVE_LIMIT
    return RULES["connection_age"].reason if now >= close_after else None


def handshake_deadline(accepted: float, timeouts: Timeouts) -> float:
    """Return when the TLS handshake must be done."""
    return accepted + timeouts.handshake


def header_deadline(start: float, timeouts: Timeouts) -> tuple[float, Rule]:
    """Return when the head of a request that began at `start` must be complete, and by which rule."""
    if timeouts.read < timeouts.read_header:
        return start + timeouts.read, RULES["read"]
    return start + timeouts.read_header, RULES["read_header"]


def body_deadline(whole: float, head_done: float, received: int, timeouts: Timeouts) -> tuple[float, Rule]:
    """Return when the next bytes of the body must be there if `received` bytes have come, and by which rule. `whole`:
    when all of it must be there, by `read`. Apache's formula."""
    rate = head_done + timeouts.body_grace + received / timeouts.body_min_rate
    return (whole, RULES["read"]) if whole < rate else (rate, RULES["body_grace"])


def write_deadline(now: float, whole: float, length: int, timeouts: Timeouts) -> tuple[float, Rule]:
    """Return when the peer must have accepted `length` bytes sent at `now`, and by which rule. `whole`: when it must
    have accepted the whole response, by `write`. Kestrel's formula."""
    send = now + max(timeouts.write_grace, length / timeouts.write_min_rate)
    return (whole, RULES["write"]) if whole < send else (send, RULES["write_grace"])


def stall_deadline(progress: float, timeouts: Timeouts) -> float:
    """Return when a peer that last took bytes of a send at `progress` must take more. `inf` if `write_grace` is off."""
    return progress + max(STALL, timeouts.write_grace)


def output_deadline(
    whole: float, write_by: float | None, length: int, since: float, progress: float, timeouts: Timeouts
) -> tuple[float, Rule]:
    """Return when the peer must have accepted more of a piece of `length` bytes that has been waiting since `since`,
    and by which rule. `whole`: when it must have accepted the whole response, by `write`. `write_by`: the deadline that
    the application has set in place of all others, None if it has not. `progress`: when the peer was last seen to take
    bytes, or the wait began."""
    if write_by is not None:
        return write_by, RULES["write"]
    due, rule = write_deadline(since, whole, length, timeouts)
    return min(due, stall_deadline(progress, timeouts)), rule


def stall_check_deadline(now: float, deadline: float) -> float:
    """Return when to check a send that waits: at its `deadline` at the latest, which may have been moved by then."""
    return min(now + STALL_CHECK, deadline)


def idle_deadline(done: float, timeouts: Timeouts) -> float:
    """Return when a connection that is idle since `done` is closed: IDLE_BUFFER after the advertised time."""
    return done + timeouts.idle + IDLE_BUFFER


def reuse_deadline(now: float, idle_since: float, grace: float, until: float) -> float:
    """Return when a drain that ends at `until` closes a connection that is idle since `idle_since`, as seen at `now`:
    `grace` seconds after that, but not within IDLE_GRACE, nor in the second half of the time that is left."""
    return min(max(idle_since + grace, now + IDLE_GRACE), (now + until) / 2)


def last_head_deadline(now: float, since: float, until: float) -> float:
    """Return when a drain from `since` to `until` ends a connection whose head is not complete, or whose TLS handshake
    is not, as seen at `now`: NEW_GRACE after its beginning, but not within REUSE_GRACE, nor in the second half of the
    time that is left."""
    return min(max(since + NEW_GRACE, now + REUSE_GRACE), (now + until) / 2)


def linger_deadline(began: float, until: float, discarded: int, now: float) -> float:
    """Return when a lingering close ends that began at `began` and lasts until `until` at most, if no more than
    `discarded` bytes come, of which the latest have come just `now`. What came faster than LINGER_RATE earns no time
    without bytes."""
    return min(until, began + LINGER + discarded / LINGER_RATE, now + LINGER)


def handler_deadline(head_done: float, timeouts: Timeouts) -> float:
    """Return when the handler must have returned."""
    return head_done + timeouts.handler


def age_deadline(accepted: float, jitter: float, timeouts: Timeouts) -> float:
    """Return the time after which responses say `Connection: close`. `jitter`, from -1 to 1, spreads it."""
    return accepted + timeouts.connection_age * (1 + AGE_JITTER * jitter)
