"""What is known of an exchange: how far its request and its response have come, and its link to the connection.

All of its state is here and, of its deadlines, in `exchange_deadlines.py`, with the questions that can be asked of it.
The derived classes change it: `ending.py`, `receiving.py`, `exchange.py`. The connection is an `ExchangeHost` here, and
the task that runs the handler a `HandlerTask` (`seams.py`).
"""

from __future__ import annotations

from typing import Final

from ..runtime import Event
from .exchange_deadlines import ExchangeDeadlines
from .late_sends import LateSends
from .seams import ExchangeHost, HandlerTask
from .state import DONE, EXPECT_100, LIVE, NONE, OPEN, SENT, STARTED, is_detachable, is_reusable
from .timeouts import INF
from .wire import Request, ResponseWriter

# the send that a handler has given up while it waited for the peer
NO_PIECE: Final = 0
PIECE: Final = 1
LAST: Final = 2


class ExchangeFacts(ExchangeDeadlines):
    """How far an exchange has come. An abstract base class; `ending.py` derives from it."""

    __slots__ = (
        "_answered",
        "_body",
        "_discarded",
        "_ends_listening",
        "_given_up",
        "_host",
        "_late",
        "_link",
        "_others",
        "_receiving",
        "_response",
        "_sending",
        "_server_status",
        "_spared_until",
        "_told",
        "_waits_end",
        "_watching",
        "_yielding",
        "ends_receives",
        "forwarded_client",
        "opens_body",
        "quiet_sends",
        "request",
        "task",
        "writer",
    )

    def __init__(self, host: ExchangeHost, request: Request, start: float, head_done: float, last: bool) -> None:
        super().__init__(host.timeouts, start, head_done)
        self.request: Request = request
        self.writer: ResponseWriter = ResponseWriter(request.method, request.version, last)
        self._host = host
        # the task that runs the handler, None before and after
        self.task: HandlerTask | None = None
        # the client as a proxy tells it, for the record; None if it is the peer
        self.forwarded_client: tuple[str, int] | None = None

        # how far it has come. `_response` is NONE, or SENT once the output has the last piece; the property `response`
        # asks whether that has left
        self._body = (EXPECT_100 if request.expects_continue else OPEN) if request.has_body else DONE
        self._response = NONE
        self._link = LIVE
        # the status that the server has answered instead of the handler, 0 if it has not
        self._server_status = 0
        # the connection has read and discarded some of the body
        self._discarded = False
        # set when the response is complete or the exchange is dead; made when needed
        self._answered: Event | None = None

        # tasks of the handler that receive: one is in `receive` and waits for bytes; one is in `wait_disconnected`
        self._receiving = False
        self._watching = False
        # since `end_waits`: their waits end and new ones fail, until `discard_body` reads
        self._waits_end = False
        # if set, the complete response ends a `receive` that waits, with Disconnected
        self.ends_receives: bool = False

        # tasks of the handler that send: those that wait for the peer, and those that only let others run, and learn
        # nothing of the peer meanwhile
        self._sending = 0
        self._yielding = 0
        # what a send has given up that was cancelled while it waited: NO_PIECE, a PIECE, the LAST
        self._given_up: int = NO_PIECE
        # `let_sends_return` does not wait any more
        self._ends_listening = False
        # if set, a send that waits when the peer is lost, or that comes soon after, returns, and the handler is
        # cancelled as one that waits for something else
        self.quiet_sends: bool = False
        # the server itself is opening what the body comes from, and the head waits for it, however long that takes
        self.opens_body: bool = False
        # sends that came when the peer was gone; made when needed
        self._late: LateSends | None = None

        # what the handler knows of its end: `tell` was called
        self._told = False
        # tasks that wait for what the peer sends, and that a cancellation of the handler may not reach
        self._others: int = 0
        # until when the handler must not be cancelled, so that such a task, which was told of the end, can tell the
        # handler; -INF if none was told
        self._spared_until: float = -INF

    @property
    def others_wait(self) -> bool:
        """True if a task waits for what the peer sends that a cancellation of the handler may not reach."""
        return self._others > 0

    @property
    def spared_until(self) -> float:
        """Until when the handler must not be cancelled; -INF if it may be."""
        return self._spared_until

    @property
    def status(self) -> int:
        """The status of the response that was started, by the handler or by the server; 0 if none was."""
        return self._server_status or (self.writer.status if self.writer.started else 0)

    @property
    def answered(self) -> bool:
        """True once the handler has given the whole response, the send of the last piece was not cancelled while it
        waited, and none waits that could raise. Some of the response may still be in the output."""
        return self.writer.complete and not (self._given_up == LAST or self._send_will_tell)

    @property
    def shows_end(self) -> bool:
        """True if what was sent of the response may leave although it is not complete: the client sees whether it got
        all, and the handler has not given up to wait for a client that reads slowly."""
        return self.writer.shows_end and self._given_up == NO_PIECE

    @property
    def body(self) -> int:
        """What was received of the body: EXPECT_100, OPEN or DONE."""
        return self._body

    @property
    def response(self) -> int:
        """What was sent of the response: NONE, STARTED or SENT."""
        if self._response == SENT and not self._host.output.size:
            return SENT
        return STARTED if self.writer.started else NONE

    @property
    def link(self) -> int:
        """The link to the connection: LIVE, DETACHED or DEAD."""
        return self._link

    @property
    def ended(self) -> bool:
        """True once the exchange has ended for its handler: it has given the whole response, was told that the peer is
        gone, or would be by its next receive or send."""
        return self._told or self._link != LIVE or self.writer.complete

    @property
    def was_told(self) -> bool:
        """True once the handler has learned that the peer is gone, or its body invalid or late."""
        return self._told

    @property
    def body_done(self) -> bool:
        """True once the handler has received the whole body, and if the request has none. A body whose rest the
        connection has discarded is never done: a receive of it raises Disconnected."""
        return self._body == DONE and not self._discarded

    @property
    def sent_by(self) -> float:
        """When the whole response must have left, by `write`; `inf` if it is not bounded, as what follows a 101."""
        return INF if self.upgraded else self.head_done + self._timeouts.write

    @property
    def upgraded(self) -> bool:
        """True once the request was answered with 101: no body follows, and the connection is another protocol's."""
        return self.writer.status == 101

    @property
    def reusable_at_once(self) -> bool:
        """True if the connection can be used again without `discard_body`."""
        return not self._watching and is_reusable(self._body, self._response, self._link)

    @property
    def receives(self) -> bool:
        """True while a task of the handler waits for the next piece of the body."""
        return self._receiving

    @property
    def reads(self) -> bool:
        """True while a task of the handler waits for bytes of the socket."""
        return self._receiving or self._watching

    @property
    def in_other_task(self) -> bool:
        """True if a cancellation of the handler may not reach the calling task."""
        return self.task is not None and not self.task.cancels_caller

    @property
    def detachable(self) -> bool:
        """True if the connection can go on while the handler is still running."""
        waits_for_output = self._link == LIVE and self._host.output.size > 0
        return is_detachable(self._response, self._link, self._receiving) and not waits_for_output

    @property
    def will_notice(self) -> bool:
        """True while a task of the handler waits in a receive, a send or `wait_disconnected`, and so will learn that
        the peer is gone."""
        return self._watching or self._receiving or self._send_will_tell

    @property
    def sends(self) -> bool:
        """True while a task of the handler is in a send that has not returned."""
        return self._sending > 0 or self._yielding > 0

    @property
    def _send_will_tell(self) -> bool:
        """True while a send waits that will raise if the peer is lost."""
        return self._sending > 0 and not self.quiet_sends
