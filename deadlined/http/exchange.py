"""One request and its response, as a handler sees them.

No task, cancel scope or timer is made for an exchange: what the handler awaits here ends by the deadlines of the body
and of the sends. Errors of the socket reach the handler as `Disconnected`; so does every receive after the connection
has gone on without the handler.

An exchange knows its connection only as an `ExchangeHost`, and the task that runs its handler only as a `HandlerTask`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

import trio

from ..errors import DeadlineExceeded
from ..runtime import checkpoint
from .errors import BadRequest, Disconnected
from .policy import RULES, Rule, body_deadline, handler_deadline, stall_deadline, write_deadline
from .seams import ExchangeHost, HandlerTask
from .state import (
    DEAD,
    DETACHED,
    DONE,
    EXPECT_100,
    LIVE,
    NONE,
    OPEN,
    SENT,
    STARTED,
    Phase,
    Reason,
    is_detachable,
    is_reusable,
)
from .timeouts import INF
from .wire import CONTINUE, Headers, Request, ResponseWriter

# bytes of an unread body that are read and discarded to keep a connection; Go's limit
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
        "_answered",
        "_body",
        "_discarded",
        "_flushed",
        "_flushing",
        "_handler_deadline",
        "_host",
        "_link",
        "_next_flusher",
        "_paused",
        "_paused_at",
        "_queued",
        "_read_by",
        "_receiving",
        "_response",
        "_send_by",
        "_taken",
        "_told",
        "_unsent",
        "_watching",
        "_write_by",
        "_write_rule",
        "head_done",
        "request",
        "start_time",
        "task",
        "writer",
    )

    def __init__(self, host: ExchangeHost, request: Request, start: float, head_done: float, last: bool) -> None:
        self.request = request
        self.writer = ResponseWriter(request.method, request.version, last)
        self._host = host
        # what runs the handler, while it does
        self.task: HandlerTask | None = None
        self.start_time = start
        self.head_done = head_done
        self._body = (EXPECT_100 if request.expects_continue else OPEN) if request.has_body else DONE
        self._response = NONE
        self._link = LIVE
        # the status that the server answered in its own name
        self._told = 0
        # the body's clock stands still while the handler does other things than receive
        self._paused = 0.0
        self._paused_at = head_done
        # a task waits for more of the body, or for the peer to leave
        self._receiving = False
        self._watching = False
        # the connection has read and thrown away some of the body
        self._discarded = False
        self._answered: trio.Event | None = None
        self._read_by: float | None = None
        self._write_by: float | None = None
        # pieces that could not be sent at once, oldest first, and how much of the first one is out; made when needed
        self._unsent: list[bytes] | None = None
        self._taken = 0
        # pieces that were ever put there, and taken from there; who sends them, and who waits to
        self._queued = 0
        self._flushed = 0
        self._flushing = False
        self._next_flusher: trio.Event | None = None
        # when the send that is under way must be done as a whole
        self._send_by: tuple[float, Rule] | None = None
        self._write_rule: Rule = _WRITE_GRACE
        self._handler_deadline = handler_deadline(head_done, host.timeouts)

    @property
    def client(self) -> tuple[str, int] | None:
        """Host and port of the peer; None on a unix socket."""
        return self._host.client

    @property
    def server_address(self) -> tuple[str, int] | None:
        """Host and port of our end; None on a unix socket."""
        return self._host.server_address

    @property
    def scheme(self) -> str:
        """ "http", or "https" over TLS."""
        return self._host.scheme

    @property
    def status(self) -> int:
        """The status that the peer was told, 0 if none was."""
        return self._told or (self.writer.status if self.writer.started else 0)

    @property
    def body(self) -> int:
        """EXPECT_100, OPEN or DONE."""
        return self._body

    @property
    def response(self) -> int:
        """NONE, STARTED or SENT."""
        if self._response == SENT:
            return SENT
        return STARTED if self.writer.started else NONE

    @property
    def link(self) -> int:
        """LIVE, DETACHED or DEAD."""
        return self._link

    @property
    def body_done(self) -> bool:
        """True once the whole body was received."""
        return self._body == DONE

    @property
    def deadline(self) -> float:
        """When the handler must have returned, absolute; `inf` if it may take its time."""
        return self._handler_deadline

    def set_read_deadline(self, when: float) -> None:
        """Receiving the body fails at `when`, in place of `read` and `body_*`. NaN is a ValueError."""
        self._read_by = _absolute(when)
        if self._link == LIVE:
            self._host.move(Phase.BODY, when)

    def set_write_deadline(self, when: float) -> None:
        """Sending fails at `when`, in place of `write` and `write_*`. NaN is a ValueError."""
        self._write_by = _absolute(when)
        if self._link == LIVE:
            self._host.move(Phase.WRITE, when)

    def set_handler_deadline(self, when: float) -> None:
        """The handler is cancelled at `when`, in place of `handler`. NaN is a ValueError."""
        self._handler_deadline = _absolute(when)
        if self.task is not None:
            self.task.arm(when)
        if self._link == LIVE:
            self._host.move(Phase.HANDLER, when)

    async def receive(self) -> bytes:
        """Receive the next piece of the body, b"" after its end.

        Disconnected if the peer left or did not send it in time, or if the response is out and the connection has gone
        on.
        """
        if self._link == DEAD or (self._link == DETACHED and (self._body != DONE or self._discarded)):
            raise Disconnected("the peer is gone")
        return b"" if self._body == DONE else await self._next_piece()

    async def wait_disconnected(self) -> None:
        """Return once the peer has left, or the response is complete."""
        host = self._host
        self._watching = True
        try:
            while self._link == LIVE and not self.writer.complete:
                if host.reader.buffered > host.limits.max_head:
                    # requests pile up behind this one: stop reading, and so stop noticing
                    await self._wait_answered()
                    return
                host.reader.feed(await self._receive(INF, None))
        except Disconnected:
            return
        finally:
            self._watching = False

    def start(self, status: int, headers: Headers) -> None:
        """Begin the response; the head leaves with the first piece of body. ResponseError if it is wrong."""
        self.writer.start(status, headers)
        if self._host.draining or self._leaves_much_unread():
            self.writer.must_close = True

    async def send(self, data: bytes, more: bool) -> None:
        """Send a piece of the body. ResponseError if the application is wrong, Disconnected if the peer is gone.

        Several tasks may send: pieces leave in the order of the calls. If the peer does not accept a piece in time, the
        connection is reset and the handler cancelled.
        """
        if not self.try_send(data, more):
            await self.finish_send()

    def try_send(self, data: bytes, more: bool) -> bool:
        """`send`, if that need not wait; if False, `finish_send()` must be called at once and awaited."""
        if self._link == DEAD:
            raise Disconnected("the peer is gone")
        writer = self.writer
        host = self._host
        framed = writer.body(data, more, b"" if writer.started else host.dates.current(), host.keep_alive_line)
        if not framed:
            # the body of a response to HEAD may be endless: `finish_send` lets others run
            return False
        taken = 0
        # a bound on the whole response may have passed, however fast the peer accepts what is sent
        whole = self._whole_by()
        if not self._unsent and (whole == INF or whole > host.clock.now()):
            try:
                taken = host.transport.try_send(framed)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self._lost(Reason.CLIENT_RESET, error)
            if taken == len(framed):
                self._mark_sent()
                return True
        self._enqueue(framed, taken)
        return False

    def finish_send(self) -> Awaitable[None]:
        """To be awaited: send what is left of all calls of `try_send` up to now."""
        return self._flush(self._queued)

    async def discard_body(self) -> bool:
        """After the response: let a watcher leave, and read what is left of the body. True if the connection can be
        used again."""
        while self._watching:
            await checkpoint()
        if self._body == EXPECT_100:
            # the body may never come, and if it comes it cannot be told from a next request
            return False
        budget = self._host.reader.received + DISCARD
        try:
            while self._body != DONE and self._host.reader.received <= budget:
                if await self._next_piece():
                    self._discarded = True
        except Disconnected:
            return False
        return is_reusable(self._body, self._response, self._link)

    @property
    def reusable_at_once(self) -> bool:
        """True if `discard_body` has nothing to do and the connection can be used again."""
        return not self._watching and is_reusable(self._body, self._response, self._link)

    @property
    def detachable(self) -> bool:
        """True if the connection can go on while the handler is still running."""
        return is_detachable(self._response, self._link, self._receiving)

    def detach(self) -> None:
        """The connection goes on without the handler: deadlines that are moved from now on move nothing of it. What is
        dead stays so."""
        if self._link == LIVE:
            self._link = DETACHED

    def kill(self, told: int = 0) -> None:
        """From now on everything is `Disconnected`; `told` is the status that the peer was answered instead, 0 if
        none was."""
        if self._link == LIVE:
            self._link = DEAD
        self._told = told or self._told
        self._wake_next_flusher()

    def _leaves_much_unread(self) -> bool:
        if self._body == DONE:
            return False
        left = (self.request.content_length or 0) - self._host.reader.received
        return left > DISCARD or self._body == EXPECT_100

    async def _next_piece(self) -> bytes:
        reader = self._host.reader
        while self._body != DONE:
            try:
                piece = reader.next_body()
            except BadRequest as bad:
                self._host.refused(bad)
                raise Disconnected(bad.detail) from bad
            if piece is not None:
                if reader.at_end:
                    self._body = DONE
                return piece
            await self._invite_body()
            self._paused += self._host.clock.now() - self._paused_at
            reader.feed(await self._receive_body())
            self._paused_at = self._host.clock.now()
        return b""

    async def _invite_body(self) -> None:
        if self._body == EXPECT_100 and not self.writer.started:
            self._body = OPEN
            self._enqueue(CONTINUE, 0)
            await self._flush(self._queued)

    def _body_deadline(self) -> tuple[float, Rule]:
        if self._read_by is not None:
            return self._read_by, RULES["read"]
        host = self._host
        return body_deadline(self.start_time, self.head_done + self._paused, host.reader.received, host.timeouts)

    async def _receive_body(self) -> bytes:
        deadline, rule = self._body_deadline()
        self._receiving = True
        try:
            return await self._receive(deadline, rule)
        finally:
            self._receiving = False
            if self._response == SENT and self.task is not None:
                self.task.receive_ended()

    async def _receive(self, deadline: float, rule: Rule | None) -> bytes:
        host = self._host
        if rule is not None:
            host.enter(Phase.BODY, deadline)
        try:
            data = await host.transport.receive(deadline)
        except DeadlineExceeded as late:
            if rule is not None:
                # the application may have set its own meanwhile
                host.expired(rule if self._read_by is None else RULES["read"], host.clock.now() - late.deadline)
            # without a rule it is the response that ended the watch, or the drain
            raise Disconnected("the body did not come in time") from late
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._lost(Reason.CLIENT_RESET, error)
        if not data:
            self._lost(Reason.CLIENT_CLOSED, None)
        host.enter(Phase.HANDLER, self._handler_deadline)
        return data

    async def _wait_answered(self) -> None:
        if self._answered is None:
            self._answered = trio.Event()
        await self._answered.wait()

    def _whole_by(self) -> float:
        """When the whole response must be out."""
        return self.head_done + self._host.timeouts.write if self._write_by is None else self._write_by

    def _enqueue(self, framed: bytes, taken: int) -> None:
        if self._unsent is None:
            self._unsent = []
        if not self._unsent:
            self._taken = taken
        self._unsent.append(framed)
        self._queued += 1

    async def _flush(self, until: int) -> None:
        """Send queued pieces, in turn with other tasks that do, until the first `until` that were ever queued are
        out."""
        if self._flushed >= until:
            # nothing is left: let others run
            self._mark_sent()
            await checkpoint()
            return
        try:
            while self._flushed < until:
                if self._link == DEAD:
                    raise Disconnected("the peer is gone")
                if self._flushing:
                    await self._wait_for_flusher()
                else:
                    await self._send_first()
        except trio.Cancelled:
            # the pieces are part of the body: without them nothing can follow
            self.kill()
            self._host.send_abandoned()
            raise
        self._mark_sent()

    async def _wait_for_flusher(self) -> None:
        if self._next_flusher is None:
            self._next_flusher = trio.Event()
        await self._next_flusher.wait()

    def _wake_next_flusher(self) -> None:
        if self._next_flusher is not None:
            self._next_flusher.set()
            self._next_flusher = None

    async def _send_first(self) -> None:
        assert self._unsent
        self._flushing = True
        try:
            await self._send(self._unsent[0], self._taken)
            self._unsent.pop(0)
            self._taken = 0
            self._flushed += 1
        finally:
            self._flushing = False
            self._wake_next_flusher()

    async def _send(self, data: bytes, taken: int) -> None:
        host = self._host
        try:
            whole = self._whole_by()
            if whole <= host.clock.now():
                self._write_rule = RULES["write"]
                raise DeadlineExceeded("write", whole)
            self._send_by = None
            await host.transport.send(data, taken, self._send_deadline)
        except DeadlineExceeded as late:
            host.expired(self._write_rule, host.clock.now() - late.deadline)
            await checkpoint()
            raise Disconnected("the peer did not accept the response in time") from late
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._lost(Reason.CLIENT_RESET, error)
        host.enter(Phase.HANDLER, self._handler_deadline)

    def _send_deadline(self, length: int) -> float:
        """When the peer must have accepted more of a send of `length` bytes. Called where the send must wait, and after
        all progress."""
        host = self._host
        now = host.clock.now()
        if self._send_by is None:
            self._send_by = write_deadline(now, self.head_done, length, host.timeouts)
        if self._write_by is not None:
            deadline, self._write_rule = self._write_by, RULES["write"]
        else:
            deadline, self._write_rule = self._send_by
            deadline = min(deadline, stall_deadline(now, host.timeouts))
        host.enter(Phase.WRITE, deadline)
        return deadline

    def _mark_sent(self) -> None:
        """Note that the response is out, if it is: its last byte has left."""
        if not self.writer.complete or self._unsent or self._response == SENT:
            return
        self._response = SENT
        if self._answered is not None:
            self._answered.set()
        if self._watching:
            # wakes the watcher
            self._host.transport.conn.set_read_deadline(-INF)
        if self.task is not None:
            self.task.response_sent()

    def _lost(self, reason: Reason, cause: Exception | None) -> None:
        # if it is dead already, the socket was closed on our side, for a reason of its own
        if self._link != DEAD:
            self._host.lost(reason)
        self.kill()
        raise Disconnected(f"the peer is gone ({reason})") from cause


def _absolute(when: float) -> float:
    if when != when:
        raise ValueError("a deadline must not be NaN; use inf for none")
    return when
