"""One websocket as its connection sees it: what comes, its deadlines and its end, without a task of its own.

Facts      RFC 6455: either side may end by a close frame, which the other answers; then the server closes. A peer may
           send at any time, also while nobody receives, and may fall silent, vanish or stop reading at any byte.
Hazard     A silent peer, a message that never ends, a close that is never answered: each would hold the connection for
           ever. Messages that nobody receives, and answers to pings that nobody reads, would fill the memory.
Answer     What comes is parsed in the poller's call. Messages wait in a queue, and beyond its bound nothing is read.
           Only the latest ping is answered while the output is blocked. One timer has the nearest of all deadlines.
           A closing handshake has `ws_close`, longer while the peer takes what was sent before the server's close.
Cost       A timer per websocket, which is moved when it fires or when a deadline comes before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..timers import Timer
from .exchange import Exchange
from .inbox import Inbox
from .liveness import CLOSE, PING
from .policy import DRAIN_NOTICE, RULES, Rule
from .seams import ExchangeHost, Upgraded
from .state import Phase, Reason
from .timeouts import INF, Timeouts
from .websocket_deadlines import Deadlines

if TYPE_CHECKING:
    from .wire.frames import Frames

# states of a websocket
CONNECTING: Final = 0  # the request is not accepted
OPEN: Final = 1
CLOSING: Final = 2  # the server's close frame was sent; the peer's is awaited
ENDING: Final = 3  # nothing is read any more; the server's close frame waits behind what the peer has not taken
CLOSED: Final = 4

_PONG: Final = 0x8A


class WebSocketProtocol(Upgraded):
    """The protocol of one websocket, once its request was accepted. `WebSocket` adds what its handler calls."""

    def __init__(self, exchange: Exchange, frames: Frames) -> None:
        self._exchange: Final = exchange
        self._frames: Final = frames
        self._maybe_host: ExchangeHost | None = None
        self.state: int = CONNECTING
        self.closed: tuple[int, str] | None = None
        self._closed_by_handler = False
        self._inbox: Final = Inbox()
        # messages that were taken before the last look at a full inbox
        self._taken = 0
        # an answer to a ping that waits until the output is not blocked any more
        self._pong = b""
        self._deadlines: Final = Deadlines()
        # set when the closing handshake begins: why
        self._why = Reason.DONE
        # by how many seconds the deadline that ends the websocket was late
        self._late = 0.0
        self._timer = Timer(_expire)

    @property
    def _host(self) -> ExchangeHost:
        host = self._maybe_host
        assert host is not None, "the websocket was not accepted"
        return host

    # implements Upgraded

    def began(self, host: ExchangeHost) -> None:
        self._maybe_host = host
        self._timer.arg = self
        self.state = OPEN
        self._deadlines.liveness.hear(host.clock.now())
        self._deadlines.end_by(host.close_after, RULES["connection_age"])
        self._arm()

    @property
    def full(self) -> bool:
        return self.state == ENDING or (self.state == OPEN and self._inbox.full)

    @property
    def deadline(self) -> float:
        return self._next()[0]

    def received(self, data: bytes) -> bool:
        if not data:
            self._end(self._why if self.state == CLOSING else Reason.CLIENT_CLOSED)
            return False
        now = self._host.clock.now()
        # whatever comes answers a ping: its answer may wait behind a message that is long
        sooner = self._deadlines.liveness.hear(now)
        frames = self._frames
        messages = frames.feed(data)
        if messages and self.state == OPEN:
            self._inbox.put(messages)
        if self._deadlines.incomplete.note(frames.incomplete, bool(messages), len(data), now) or sooner:
            self._arm_before(self._next()[0])
        if frames.failed is not None:
            code, text = frames.failed
            why = Reason.MESSAGE_TOO_LARGE if code == 1009 else Reason.PROTOCOL_ERROR
            if self.state == CLOSING:
                # the server's close says why; the message that it has interrupted stays incomplete
                why = self._why
            self._end_once_sent(why, code, text)
        elif frames.peer_closed is not None:
            code, text = frames.peer_closed
            self._end_once_sent(self._why, code, text)
        else:
            self._answer()
        return frames.incomplete and frames.few

    def timeouts_changed(self, before: Timeouts) -> None:
        self._deadlines.begin_again(self._host.clock.now())
        self._arm()

    def read_deadline_moved(self, when: float) -> None:
        if self.state == OPEN:
            self._arm()

    def handler_left(self, failed: bool) -> None:
        if self.state == OPEN:
            self._start_close(1011 if failed else 1000, "", Reason.SERVER_ERROR if failed else Reason.DONE)
        self._inbox.clear()

    def handler_expired(self, lateness: float) -> None:
        self._expire_by(RULES["handler"], lateness)

    def output_sent(self) -> None:
        if self.state == ENDING:
            self._end(self._why, unread=True)
        elif self._pong:
            self._host.output.append(self._pong)
            self._pong = b""
            self._host.output.flush()

    def drain(self) -> None:
        if self.state == OPEN:
            when = self._host.clock.now() + DRAIN_NOTICE
            self._deadlines.end_by(when, RULES["drain"])
            self._arm_before(when)

    @property
    def ending(self) -> bool:
        return self.state > OPEN

    @property
    def closed_by_handler(self) -> bool:
        return self._closed_by_handler

    def ended(self, reason: Reason) -> None:
        self.state = CLOSED
        self._note_end(1006, "")
        self._host.loop.set_timer(self._timer, INF)
        self._timer.arg = None
        self._frames.release()
        self._inbox.wake()

    # output

    def _flush_frames(self) -> None:
        """Send what `frames` have made."""
        host = self._host
        for piece in self._frames.data_to_send():
            host.output.append(piece)
        host.flush_soon(True)

    def _answer(self) -> None:
        """Send the answers that `frames` have made. While the output is blocked, keep only that to the latest ping.
        Answer no ping of a peer that has left: the reset that follows would discard what it has sent after that."""
        output = self._host.output
        answers = self._frames.data_to_send()
        for piece in answers:
            if piece[0] != _PONG:
                output.append(piece)
            elif output.blocked:
                self._pong = piece
            elif not self._host.transport.conn.peer_has_left:
                output.append(piece)
        if answers:
            self._host.flush_soon(False)

    # deadlines

    def _next(self) -> tuple[float, Rule | None]:
        """Return the nearest deadline, and its rule; None for that of a ping."""
        timeouts = self._host.timeouts
        if self.state == OPEN:
            return self._deadlines.next(timeouts, self._exchange.read_by, self.full)
        return self._deadlines.liveness.next(timeouts)

    def _arm(self) -> None:
        """Let the timer fire at the nearest deadline."""
        self._host.loop.set_timer(self._timer, self._next()[0])

    def _arm_before(self, when: float) -> None:
        """Let the timer fire at `when` if it would fire later."""
        if when < self._timer.when:
            self._host.loop.set_timer(self._timer, when)

    def expire(self, lateness: float) -> None:
        """Act if the nearest deadline has passed. Called by the timer, which is early if a deadline has moved."""
        if self.state == CLOSED:
            return
        when, rule = self._next()
        now = self._host.clock.now()
        if when > now:
            self._arm()
        elif rule is None:
            self._ping(now)
        elif rule.phase is Phase.WEBSOCKET and self._extend(now):
            self._arm()
        else:
            self._expire_by(rule, max(now - when, lateness))

    def _ping(self, now: float) -> None:
        """Send a ping, unless the output is blocked, which has a deadline of its own. Wait for the answer, unless the
        inbox is full, so that nothing is read: if the peer has left then, it is not asked, which it would answer by a
        reset, and the websocket ends if the handler receives nothing."""
        has_left = self.full and self._host.was_left
        if has_left and self._inbox.taken == self._taken:
            self._end(Reason.CLIENT_CLOSED)
            return
        if self.full:
            self._taken = self._inbox.taken
            self._deadlines.liveness.hear(now)
        elif self._host.output.blocked:
            self._deadlines.liveness.hear(now)
        else:
            self._ask(PING)
        if not (has_left or self._host.output.blocked):
            self._frames.ping()
            self._flush_frames()
        if self.state == OPEN:
            self._arm()

    def _ask(self, rule: Rule) -> None:
        """Note that the peer must answer a PING or a CLOSE, which is sent now."""
        transport = self._host.transport
        untaken = transport.untaken + self._host.output.size
        self._deadlines.liveness.ask(rule, self._host.clock.now(), transport.taken, untaken)

    def _extend(self, now: float) -> bool:
        return self._deadlines.liveness.extend(now, self._host.transport.taken, self._host.timeouts)

    def _expire_by(self, rule: Rule, lateness: float) -> None:
        """Do what `rule` says, whose deadline has passed."""
        if self.state in (CLOSING, ENDING):
            # the reason of the server's close, if it has one, says more than the missing answer
            if self._why is Reason.DONE:
                self._late = self._host.count_expiry(lateness)
                self._why = rule.reason
            # a reset would discard what the peer has not taken, if it goes on sending
            self._end(self._why, unread=self._host.transport.untaken > 0)
        elif self.state == OPEN:
            code = rule.code or 1011
            why = Reason.DONE if rule.field == "drain" else rule.reason
            if rule.phase not in (Phase.DRAIN, Phase.IDLE):
                # no peer is to blame for a drain, or for the connection's age
                self._late = self._host.count_expiry(lateness)
            if rule.field == "ws_pong":
                # the peer would not answer a close
                self._frames.close(code, str(why))
                self._flush_frames()
                self._end(why, code, str(why))
            else:
                # the close says `drain`, and the connection ends for DONE: a drain that ends well is not a timeout
                self._start_close(code, rule.field if why is Reason.DONE else str(why), why)

    # the end

    def _start_close(self, code: int, text: str, why: Reason) -> None:
        self._frames.close(code, text)
        self._begin_close(why, code, text)

    def _begin_close(self, why: Reason, code: int, text: str) -> None:
        """Wait for the peer's answer to the close that `frames` have made."""
        self._enter(CLOSING, why, code, text)
        self._flush_frames()
        if self.state == CLOSING:
            # messages are not received any more, but the answer must be read
            self._host.read_on()

    def _end_once_sent(self, why: Reason, code: int, text: str) -> None:
        """End once the server's close has left, which `frames` have made: what the peer still sends does not count."""
        self._enter(ENDING, why, code, text)
        self._answer()
        # only the kernel knows if it takes all that was sent in this turn
        self._host.output.flush()
        if not self._host.output.blocked:
            # a reset would discard the close, if the peer goes on sending (RFC 6455, 7.1.1)
            self._end(why, unread=True)

    def _enter(self, state: int, why: Reason, code: int, text: str) -> None:
        """Enter the closing handshake, or its last part: no message is sent or received any more."""
        self._why = why
        self._note_end(code, text)
        self.state = state
        self._ask(CLOSE)
        self._arm()
        self._inbox.wake()

    def _end(self, reason: Reason, code: int = 1006, text: str = "", unread: bool = False) -> None:
        """End the connection."""
        if self.state != CLOSED:
            self._note_end(code, text)
            self._host.end_upgraded(reason, self._late, unread)

    def _note_end(self, code: int, text: str) -> None:
        """Note code and reason of the end. Those of a close that has begun stay: the handler may know them."""
        if self.closed is None:
            self.closed = (code, text)


def _expire(websocket: WebSocketProtocol, seq: int, lateness: float) -> None:
    websocket.expire(lateness)
