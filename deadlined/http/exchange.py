"""One request and its response, as a handler sees them.

The handler runs in the task that serves the connection: no task, no cancel scope and no timer is made for it. What the
handler awaits here ends by the deadlines of the body and of the sends; what it may not know of sockets it sees as
`Disconnected`. So it is, too, once the connection has gone on without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ..errors import DeadlineExceeded
from ..runtime import checkpoint
from .errors import BadRequest, Disconnected
from .phases import RULES, Phase, Reason, Rule, body_deadline, handler_deadline, stall_deadline, write_deadline
from .timeouts import INF
from .wire import CONTINUE, Headers, Request, ResponseWriter

if TYPE_CHECKING:
    from .connection import HttpConnection
    from .handling import Handling

# bytes of an unread body that are read and thrown away to keep a connection; Go's limit
DISCARD: Final = 256 * 1024

# a name of this module, which compiled code finds faster than a key
_WRITE_GRACE: Final = RULES["write_grace"]


class Exchange:
    """A request, its body to receive, and its response to send.

    The deadlines of the exchange can be moved with `set_read_deadline`, `set_write_deadline` and
    `set_handler_deadline` (absolute times on the run's clock, `inf` for none), which then replace those of `Timeouts`
    for the rest of it. One that has passed cannot be taken back: the peer has been told.
    """

    __slots__ = (
        "_body_done",
        "_continued",
        "_handler_deadline",
        "_link",
        "_out",
        "_over",
        "_past",
        "_paused",
        "_paused_at",
        "_read_by",
        "_receiving",
        "_send_by",
        "_taken",
        "_told",
        "_unsent",
        "_watching",
        "_write_by",
        "_write_rule",
        "handling",
        "head_done",
        "request",
        "start_time",
        "writer",
    )

    def __init__(self, link: HttpConnection, request: Request, start: float, head_done: float, last: bool) -> None:
        self.request = request
        self.writer = ResponseWriter(request.method, request.version, last)
        self._link = link
        self.start_time = start
        self.head_done = head_done
        self._body_done = not request.has_body
        self._continued = not request.expects_continue
        self._over = False
        # the last byte of the response has left
        self._out = False
        # the connection has gone on
        self._past = False
        # what runs the handler, while it does
        self.handling: Handling | None = None
        # the status that the server answered in its own name
        self._told = 0
        # the body's clock stands still while the handler does other things than receive
        self._paused = 0.0
        self._paused_at = head_done
        self._watching = False
        # somebody waits for more of the body
        self._receiving = False
        self._read_by: float | None = None
        self._write_by: float | None = None
        # what the last send has left, for `finish_send`
        self._unsent = b""
        self._taken = 0
        # when the send that is under way must be done as a whole
        self._send_by: tuple[float, Rule] | None = None
        self._write_rule: Rule = _WRITE_GRACE
        self._handler_deadline = handler_deadline(head_done, link.timeouts)

    @property
    def link(self) -> HttpConnection:
        """The connection that this exchange is part of."""
        return self._link

    @property
    def answered(self) -> bool:
        """True once the head of the response has left."""
        return self.writer.started

    @property
    def status(self) -> int:
        """The status that the peer was told, 0 if none was."""
        return self._told or (self.writer.status if self.writer.started else 0)

    @property
    def over(self) -> bool:
        """True once the peer can neither be heard nor told anything any more."""
        return self._over

    @property
    def deadline(self) -> float:
        """When the handler must have returned, absolute; `inf` if it may take its time."""
        return self._handler_deadline

    def set_read_deadline(self, when: float) -> None:
        """Receiving the body fails at `when`, in place of `read` and `body_*`. NaN is a ValueError."""
        self._read_by = _absolute(when)
        if self._link.phase is Phase.BODY and not self._past:
            self._link.conn.set_read_deadline(when)
            self._link.deadline = when

    def set_write_deadline(self, when: float) -> None:
        """Sending fails at `when`, in place of `write` and `write_*`. NaN is a ValueError."""
        self._write_by = _absolute(when)
        if self._link.phase is Phase.WRITE and not self._past:
            self._link.conn.set_write_deadline(when)
            self._link.deadline = when

    def set_handler_deadline(self, when: float) -> None:
        """The handler is cancelled at `when`, in place of `handler`. NaN is a ValueError."""
        self._handler_deadline = _absolute(when)
        if self.handling is not None:
            self.handling.arm(when)
        if self._link.phase is Phase.HANDLER and not self._past:
            self._link.deadline = when

    async def receive(self) -> bytes:
        """The next piece of the body, b"" after its end. Disconnected if the peer left or did not send it in time, or
        the response is out and the connection has gone on."""
        if self._over or self._past:
            raise Disconnected("the peer is gone")
        return b"" if self._body_done else await self._next_piece()

    async def wait_disconnected(self) -> None:
        """Return once the peer has left, or the response is complete."""
        link = self._link
        self._watching = True
        try:
            while not (self._over or self.writer.complete):
                if link.parser.buffered > link.limits.max_head:
                    # requests pile up behind this one: stop reading, and so stop noticing
                    await link.wait_answered()
                    return
                link.parser.feed(await self._receive(INF, None))
        except Disconnected:
            return
        finally:
            self._watching = False

    def start(self, status: int, headers: Headers) -> None:
        """Begin the response; the head leaves with the first piece of body. ResponseError if it is wrong."""
        self.writer.start(status, headers)
        if self._link.server.draining or self._leaves_much_unread():
            self.writer.must_close = True

    async def send(self, data: bytes, more: bool) -> None:
        """Send a piece of the body. ResponseError if the application is wrong, Disconnected if the peer is gone.

        If the peer does not take it in time, the connection is reset and the connection's task cancelled.
        """
        if not self.try_send(data, more):
            await self.finish_send()

    def try_send(self, data: bytes, more: bool) -> bool:
        """`send`, if that need not wait; if False, `finish_send` must be awaited."""
        if self._over:
            raise Disconnected("the peer is gone")
        link = self._link
        server = link.server
        framed = self.writer.body(data, more, server.date_line(), server.keep_alive_line)
        self._unsent = framed
        self._taken = 0
        # a bound on the whole response may have passed, however willingly the peer takes what is sent; and the body of
        # a response to HEAD may be endless, too
        whole = self._whole_by()
        if not framed or (whole < INF and whole <= link.clock.now()):
            return False
        try:
            self._taken = link.transport.try_send(framed)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._lost(Reason.CLIENT_RESET, error)
        if self._taken < len(framed):
            return False
        self._sent()
        return True

    async def finish_send(self) -> None:
        """Send what `try_send` has left."""
        if self._unsent:
            await self._send(self._unsent, self._taken)
        else:
            await checkpoint()
        self._sent()

    async def settle(self) -> bool:
        """After the response: let a watcher leave, and read what is left of the body; True if the connection can go
        on."""
        while self._watching:
            await checkpoint()
        if not self._continued and not self._body_done:
            # it may never come, and if it comes it is not known from a next request
            return False
        budget = self._link.parser.received + DISCARD
        try:
            while not self._body_done and self._link.parser.received <= budget:
                await self._next_piece()
        except Disconnected:
            return False
        return self._body_done

    @property
    def settled(self) -> bool:
        """True if `settle` has nothing to do and the connection can go on."""
        return self._body_done and not self._watching

    @property
    def body_done(self) -> bool:
        """True once the whole body was received."""
        return self._body_done

    @property
    def out(self) -> bool:
        """True once the whole response has left."""
        return self._out

    @property
    def can_be_left(self) -> bool:
        """True if the connection could go on while the handler is still running."""
        return self._out and not self._receiving and not self._past

    @property
    def past(self) -> bool:
        """True once the connection has gone on without this exchange."""
        return self._past

    def end(self) -> None:
        """The connection goes on without this exchange: what is moved from now on moves nothing."""
        self._past = True

    def give_up(self, told: int = 0) -> None:
        """From now on everything is `Disconnected`; the peer was `told` that status instead."""
        self._over = True
        self._told = told or self._told

    def _leaves_much_unread(self) -> bool:
        if self._body_done:
            return False
        left = (self.request.content_length or 0) - self._link.parser.received
        return left > DISCARD or not self._continued

    async def _next_piece(self) -> bytes:
        parser = self._link.parser
        while not self._body_done:
            try:
                piece = parser.next_body()
            except BadRequest as bad:
                self._refuse(bad)
            if piece is not None:
                self._body_done = parser.at_end
                return piece
            await self._invite_body()
            self._paused += self._link.clock.now() - self._paused_at
            parser.feed(await self._receive_body())
            self._paused_at = self._link.clock.now()
        return b""

    async def _invite_body(self) -> None:
        if not self._continued and not self.answered:
            self._continued = True
            await self._send(CONTINUE, 0)

    def _body_deadline(self) -> tuple[float, Rule]:
        if self._read_by is not None:
            return self._read_by, RULES["read"]
        link = self._link
        return body_deadline(self.start_time, self.head_done + self._paused, link.parser.received, link.timeouts)

    def _whole_by(self) -> float:
        """When the whole response must be out."""
        return self.head_done + self._link.timeouts.write if self._write_by is None else self._write_by

    def _send_deadline(self, length: int) -> float:
        """By when more must be taken of a send of `length` bytes; asked where it must wait, and after all progress."""
        link = self._link
        now = link.clock.now()
        if self._send_by is None:
            self._send_by = write_deadline(now, self.head_done, length, link.timeouts)
        if self._write_by is not None:
            deadline, self._write_rule = self._write_by, RULES["write"]
        else:
            deadline, self._write_rule = self._send_by
            deadline = min(deadline, stall_deadline(now, link.timeouts))
        link.enter(Phase.WRITE, deadline)
        return deadline

    async def _receive_body(self) -> bytes:
        deadline, rule = self._body_deadline()
        self._receiving = True
        try:
            return await self._receive(deadline, rule)
        finally:
            self._receiving = False

    async def _receive(self, deadline: float, rule: Rule | None) -> bytes:
        link = self._link
        if rule is not None:
            link.enter(Phase.BODY, deadline)
        try:
            data = await link.transport.receive(deadline)
        except DeadlineExceeded as late:
            if rule is not None:
                # the application may have set its own meanwhile
                link.cut(rule if self._read_by is None else RULES["read"], link.clock.now() - late.deadline)
            # without a rule it is the response that ended the watch, or the drain
            raise Disconnected("the body did not come in time") from late
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._lost(Reason.CLIENT_RESET, error)
        if not data:
            self._lost(Reason.CLIENT_CLOSED, None)
        link.enter(Phase.HANDLER, self._handler_deadline)
        return data

    def _sent(self) -> None:
        self._unsent = b""
        if self.writer.complete:
            self._out = True
            self._link.response_complete(self._watching)
            if self.handling is not None:
                self.handling.answered()

    async def _send(self, data: bytes, taken: int) -> None:
        link = self._link
        try:
            whole = self._whole_by()
            if whole <= link.clock.now():
                # however willingly the peer takes what is sent
                self._write_rule = RULES["write"]
                raise DeadlineExceeded("write", whole)
            self._send_by = None
            await link.transport.send(data, taken, self._send_deadline)
        except DeadlineExceeded as late:
            link.cut(self._write_rule, link.clock.now() - late.deadline)
            link.cancel()
            await checkpoint()
            raise Disconnected("the peer did not take the response in time") from late
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._lost(Reason.CLIENT_RESET, error)
        except trio.Cancelled:
            # part of it may have left, so that nothing can follow
            self._over = True
            link.conn.abort()
            raise
        link.enter(Phase.HANDLER, self._handler_deadline)

    def _refuse(self, bad: BadRequest) -> None:
        self._link.refuse(bad)
        raise Disconnected(bad.detail) from bad

    def _lost(self, reason: Reason, cause: Exception | None) -> None:
        self._over = True
        self._link.finish(reason)
        raise Disconnected(f"the peer is gone ({reason})") from cause


def _absolute(when: float) -> float:
    if when != when:
        raise ValueError("a deadline must not be NaN; use inf for none")
    return when
