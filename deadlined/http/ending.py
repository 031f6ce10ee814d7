"""The end of an exchange: for its connection, and for its handler.

Facts      An exchange ends when its response is complete, when the connection goes on without the handler, or when the
           connection ends. A handler learns of the end by a receive or a send. On asyncio many frameworks have one
           task that receives and one that answers, and wait for both: the first to end has the other one cancelled.
Hazard     A handler that never receives nor sends would run on for nobody. A cancellation of what waits for such tasks
           would leave both running.
Answer     An exchange that has ended for its connection is detached or dead, and stays so. A handler that was told has
           DISCONNECT_GRACE to return, and is cancelled then, where a disconnect cancels. If a cancellation may miss a
           task that waits for the peer, that task is told first, and the handler is spared for DISCONNECT_GRACE.
Cost       None while the exchange goes on.
"""

from __future__ import annotations

from typing import Final

from ..runtime import checkpoint
from .facts import ExchangeFacts
from .policy import DISCONNECT_GRACE
from .state import DEAD, DETACHED, LIVE
from .timeouts import INF

# steps of the event loop that a handler has to leave the socket once its waits have ended. On asyncio a cancellation
# takes two steps to pass from a task to its child
_STEPS_TO_LEAVE: Final = 16


class EndingExchange(ExchangeFacts):
    """An exchange that ends. An abstract base class; `receiving.py` derives from it."""

    __slots__ = ()

    # the link to the connection

    def detach(self) -> None:
        """Note that the connection goes on without the handler. A deadline for receiving or sending that the
        handler sets from now on does nothing. A dead exchange stays dead."""
        if self._link == LIVE:
            self._link = DETACHED

    def kill(self, status: int = 0) -> None:
        """Make a live exchange a dead one: its receives raise Disconnected from now on, and so do its sends, or they do
        nothing, as `send` says. A detached one stays detached. `status`: what the server answers instead of the
        handler, 0 if nothing."""
        if self._link == LIVE:
            self._link = DEAD
            if self._sending:
                self._host.output.wake_senders()
        self._server_status = status or self._server_status
        if self._answered is not None:
            self._answered.set()

    # what the handler is told

    def tell(self) -> None:
        """Note that the handler learns, by a receive or a send, that the peer is gone or its body invalid or late:
        unless it has given the whole response, it has DISCONNECT_GRACE to return. If the exchange is dead, the
        connection waits for the handler no longer."""
        self._told = True
        if not self.writer.complete:
            self.end_soon()
        if self._link == DEAD and self.task is not None:
            self.task.not_needed()

    def end_soon(self, grace: float = DISCONNECT_GRACE) -> None:
        """Have the handler cancelled if in `grace` seconds it has neither returned nor completed its response, wherever
        it moves its deadline. No effect if an earlier call leaves it less, or without `cancel_on_disconnect`."""
        when = self._host.clock.now() + grace
        if self._host.cancel_on_disconnect and when < self._leave_by:
            self._leave_by = when
            if self.task is not None:
                self.task.arm(self.deadline)

    def tell_others(self) -> None:
        """Before a handler is cancelled: if the cancellation may miss a task that waits for the peer, let that task
        learn that the exchange has ended, and spare the handler for DISCONNECT_GRACE seconds."""
        if not self._others:
            return
        self.spare()
        if self._link == DETACHED:
            # a receive that waits until the sends of a complete response return; the response leaves all the same
            self._ends_listening = True
            self._host.output.wake_senders()
        elif not self.upgraded:
            self.kill()
            # a socket that is closed has ended the waits
            if not self._waits_end and self._host.transport.conn.socket.fileno() >= 0:
                self.end_waits()

    def count_others(self, more: int) -> None:
        """Add `more`, which may be -1, to the tasks that wait for the peer and that a cancellation of the handler may
        miss."""
        self._others += more
        if more < 0 and self.ended:
            self.note_told()

    def note_told(self) -> None:
        """Note that the calling task learns that the exchange has ended. The first call in a task which a cancellation
        of the handler may not reach spares the handler for DISCONNECT_GRACE seconds."""
        if self._spared_until == -INF and self.in_other_task:
            self.spare()

    def spare(self) -> None:
        """Let nothing cancel the handler for DISCONNECT_GRACE seconds from now."""
        self._spared_until = self._host.clock.now() + DISCONNECT_GRACE

    # its tasks that wait for bytes

    def end_waits(self) -> None:
        """Wake the tasks that wait for bytes of the peer, in `receive` and `wait_disconnected`."""
        self._waits_end = True
        self._host.transport.conn.set_read_deadline(-INF)

    async def end_reads(self) -> None:
        """End what tasks of the handler, which has left, wait for: from now on the connection reads. Do nothing once
        the socket is closed, which has ended them."""
        if self.reads and self._host.transport.conn.socket.fileno() >= 0:
            self.end_waits()
            await self.let_leave()

    async def let_leave(self) -> None:
        """Let tasks whose waits for bytes have ended, or that were cancelled, leave the socket."""
        for _ in range(_STEPS_TO_LEAVE):
            await checkpoint()
            if not self.reads:
                return
