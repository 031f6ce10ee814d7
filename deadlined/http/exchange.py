"""One request and its response, as a handler sees them.

An exchange makes no task, cancel scope or timer. `receiving.py` has its request; here is the response. A send ends by
the deadline of the send, a response by that of the whole.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ..errors import DeadlineExceeded
from ..net import BrokenResourceError, ClosedResourceError
from ..runtime import checkpoint
from .errors import Disconnected
from .policy import RULES, stall_deadline, write_deadline
from .receiving import DISCARD, ReceivingExchange
from .sending import SendQueue
from .state import DEAD, DONE, EXPECT_100, SENT, Phase, Reason
from .timeouts import INF
from .wire import CONTINUE, Headers


class Exchange(ReceivingExchange):
    """A request, its body to receive, and its response to send.

    `set_read_deadline`, `set_write_deadline` and `set_handler_deadline` replace the deadlines that follow from
    `Timeouts`, for the rest of the exchange. They take absolute times on the event loop's clock, `inf` for none. A
    deadline that has passed cannot be moved any more: the peer has been told.
    """

    __slots__ = ()

    def start(self, status: int, headers: Headers) -> None:
        """Begin the response. The head is sent with the first piece of the body. Raise ResponseError for an invalid
        head."""
        self.writer.start(status, headers)
        if self._host.draining or self._leaves_much_unread():
            self.writer.must_close = True

    async def send(self, data: bytes, more: bool) -> None:
        """Send a piece of the body; `more` is False for the last one.

        Raise ResponseError if the piece does not fit the response, Disconnected if the peer is gone. Several tasks may
        send; the pieces are sent in the order of the calls. If the peer does not accept a piece in time, the connection
        is reset and the handler is cancelled.
        """
        if not self.try_send(data, more):
            await self.finish_send()

    def try_send(self, data: bytes, more: bool) -> bool:
        """Do what `send` does, if that needs no wait. If this returns False, the caller must call `finish_send()` at
        once and await it."""
        if self._link == DEAD:
            raise Disconnected("the peer is gone")
        writer = self.writer
        host = self._host
        framed = writer.body(data, more, b"" if writer.started else host.dates.current(), host.keep_alive_line)
        if not framed:
            # nothing to send, as in a response to HEAD. There may be endlessly many pieces, so let `finish_send` yield
            return False
        taken = 0
        # the deadline of the whole response counts also while no send has to wait
        due = self._response_due()
        if (self._queue is None or self._queue.is_empty) and (due == INF or due > host.clock.now()):
            try:
                taken = host.transport.try_send(framed)
            except (BrokenResourceError, ClosedResourceError) as error:
                self._raise_lost(Reason.CLIENT_RESET, error)
            if taken == len(framed):
                self._mark_if_sent()
                return True
        self._enqueue(framed, taken)
        return False

    def finish_send(self) -> Awaitable[None]:
        """Return an awaitable that sends what earlier calls of `try_send` have left. A checkpoint."""
        return self._flush(0 if self._queue is None else self._queue.end)

    def _leaves_much_unread(self) -> bool:
        """Return True if `discard_body` would give up, as far as is known now."""
        if self._body == DONE:
            return False
        left = (self.request.content_length or 0) - self._host.reader.received
        return left > DISCARD or self._body == EXPECT_100

    def _response_due(self) -> float:
        """Return when the whole response must be sent."""
        return self.head_done + self._host.timeouts.write if self._write_by is None else self._write_by

    def _enqueue(self, framed: bytes, taken: int) -> None:
        if self._queue is None:
            self._queue = SendQueue()
        self._queue.append(framed, taken)

    async def _send_continue(self) -> None:
        self._enqueue(CONTINUE, 0)
        await self.finish_send()

    async def _flush(self, end: int) -> None:
        """Send the first `end` pieces that were ever queued. Let other tasks run if all are sent."""
        queue = self._queue
        if queue is None or queue.sent >= end:
            self._mark_if_sent()
            await checkpoint()
            return
        try:
            await queue.flush(end, self._send)
        except Exception:
            raise
        except BaseException:
            # cancelled: a piece that is missing would corrupt what follows it, so give up the connection
            self.kill()
            self._host.send_abandoned()
            raise
        self._mark_if_sent()

    async def _send(self, data: bytes, taken: int) -> None:
        """Send `data` from byte `taken` on by its deadlines, and translate errors."""
        host = self._host
        try:
            due = self._response_due()
            if due <= host.clock.now():
                self._write_rule = RULES["write"]
                raise DeadlineExceeded("write", due)
            self._send_due = None
            await host.transport.send(data, taken, self._send_deadline)
        except DeadlineExceeded as late:
            host.expired(self._write_rule, host.clock.now() - late.deadline)
            await checkpoint()
            raise Disconnected("the peer did not accept the response in time") from late
        except (BrokenResourceError, ClosedResourceError) as error:
            self._raise_lost(Reason.CLIENT_RESET, error)
        host.enter(Phase.HANDLER, self._handler_deadline)
        if not (self.writer.complete or self._watching or self._receiving):
            host.watch_peer()

    def _send_deadline(self, length: int) -> float:
        """Return when the peer must have accepted more of a send of `length` bytes, and enter the write phase. Called
        when the send must wait, and after each progress."""
        host = self._host
        now = host.clock.now()
        if self._send_due is None:
            self._send_due = write_deadline(now, self.head_done, length, host.timeouts)
        if self._write_by is not None:
            deadline, self._write_rule = self._write_by, RULES["write"]
        else:
            deadline, self._write_rule = self._send_due
            deadline = min(deadline, stall_deadline(now, host.timeouts))
        host.enter(Phase.WRITE, deadline)
        return deadline

    def _mark_if_sent(self) -> None:
        """Note that the response is sent, if it is complete and nothing is queued. End a watch, and tell the task."""
        if not self.writer.complete or self._response == SENT or not (self._queue is None or self._queue.is_empty):
            return
        self._response = SENT
        self._host.unwatch_peer()
        if self._answered is not None:
            self._answered.set()
        if self._watching:
            # ends `wait_disconnected`
            self._host.transport.conn.set_read_deadline(-INF)
        if self.task is not None:
            self.task.response_sent()
