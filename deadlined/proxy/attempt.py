"""One try of a request at one upstream: it goes out, and the response goes to the client.

Facts      A response may come before the request's body is complete. An upstream may fail at any moment.
Hazard     A response that was cut off may look complete. A connection that was left in the middle would give its rest
           to the next request.
Answer     A failure says whether anything was sent back. A connection is kept only after a whole request and a whole
           response. Most requests come at once, as do most responses: then the poller's calls do all of it (`begin`).
           Whatever else happens is left to a task (`run`), which goes on where the calls have stopped.
Cost       A task for a request that needs a new connection or must wait, and another one for a body that has not come
           with its head.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ..errors import DeadlineExceeded, Kept
from ..http import Exchange
from .connection import ConnectionUser, UpstreamConnection
from .errors import Failure, UpstreamError, bare
from .fields import required_upgrade, response_fields
from .options import INF
from .shared import Shared
from .tunnel import Tunnel
from .upload import Upload, framed
from .upstream import Upstream

if TYPE_CHECKING:
    from ..http import Response

_log: Final = logging.getLogger("deadlined.proxy")

# an idle connection that fails so, and so soon, was closed when the request came
_STALE: Final = frozenset((Failure.CLOSED, Failure.RESET))
_STALE_WITHIN: Final = 1.0


class Attempt(ConnectionUser):
    """One try of a request: sends `head` and the body of `exchange` to `upstream`, and the response to the client.
    `upgrade`: the protocol that the client asks for, b"" for none. `fresh`: use a new connection, not an idle one.

    The caller has acquired the upstream; the attempt releases it at its end. Call `begin` to try without a task. Call
    `run` in a task, unless `begin` was enough.
    """

    __slots__ = (
        "_begun",
        "_connection",
        "_exchange",
        "_failure",
        "_fresh",
        "_has_left",
        "_parts",
        "_refusal",
        "_response",
        "_send_waits",
        "_shared",
        "_timeouts",
        "_upgrade",
        "_upload",
        "upstream",
    )

    def __init__(
        self, exchange: Exchange, shared: Shared, upstream: Upstream, head: bytes, upgrade: bytes, fresh: bool
    ) -> None:
        self.upstream: Upstream = upstream
        self._exchange = exchange
        self._shared = shared
        # those with which the try begins hold for all of it, also after a reload
        self._timeouts = shared.timeouts
        self._upgrade = upgrade
        self._fresh = fresh
        self._begun = shared.clock.now()
        # what is sent first: the head, and what has come of the body
        self._parts: list[bytes] = [head]
        self._connection: UpstreamConnection | None = None
        # once the response to the client has begun
        self._response: Response | None = None
        # `Exchange.finish_send` is due before the next piece
        self._send_waits = False
        # the body that is sent while the response is awaited, None if there is none
        self._upload: Upload | None = None
        # why the upstream has not taken the whole request, if that was not an upload: it may have answered before
        self._refusal: UpstreamError | None = None
        # what has gone wrong without a task, for the task
        self._failure: Kept | None = None
        # the connection and the upstream were given up
        self._has_left = False
        upstream.count_try()

    # without a task

    def begin(self) -> None:
        """Send the request without a task, on an idle connection of the upstream, which must have one. The connection
        calls `connection_ready` then. `Exchange.go_on` is called once the response is complete, or as soon as a task is
        needed."""
        connection = self.upstream.pop_idle()
        assert connection is not None, "the upstream has no idle connection"
        connection.lend(self)
        self._use(connection)
        try:
            if self._collect() and self._send_now(connection):
                return
        except Exception as error:
            self._failure = Kept(error)
        self._need_task()

    def connection_ready(self, connection: UpstreamConnection) -> None:
        try:
            if not connection.resume() or self._pass_on(connection):
                return
        except DeadlineExceeded:
            # the deadline of the handler is met in the task
            if self._exchange.deadline > self._shared.clock.now():
                self._failure = Kept(self._why_late(connection))
        except Exception as error:
            self._failure = Kept(error)
        if self._has_left:
            # nobody will ask for it, and its traceback refers to this object
            self._failure = None
            self._exchange.go_on()
        else:
            self._need_task()

    def abandon(self) -> None:
        """Give the upstream up in the middle. Idempotent."""
        self._leave()

    def _send_now(self, connection: UpstreamConnection) -> bool:
        """Send the whole request. Return False if the kernel has not taken all of it, or the connection has failed: the
        task sends the rest, and meets the error."""
        data = b"".join(self._parts)
        try:
            sent = connection.send_now(data)
        except UpstreamError:
            return False
        if sent < len(data):
            self._parts = [data[sent:]]
            return False
        connection.progress.note_sent()
        self._bound(connection)
        return True

    def _pass_on(self, connection: UpstreamConnection) -> bool:
        """Send what has come of the response to the client. Return True if this is called again when more has come;
        False if all was sent, or a task is needed."""
        exchange = self._exchange
        if self._response is None:
            response = connection.next_head(exchange.request.method)
            if response is None:
                return self._await_more(connection)
            self._start(connection, response)
        # no more than was received at once
        while (piece := connection.next_piece()) is not None:
            more = not connection.reader.at_end
            self._send_waits = not exchange.try_send(piece, more)
            if not more:
                self.upstream.succeeded()
                self._leave()
            if not more or self._send_waits:
                return False
        return self._await_more(connection)

    def _await_more(self, connection: UpstreamConnection) -> bool:
        connection.progress.apply()
        self._bound(connection)
        # a stream of events may have nothing to say for long
        self._exchange.hold_head()
        return connection.call_again()

    def _bound(self, connection: UpstreamConnection) -> None:
        """Move the read deadline of the connection to that of the handler, if that is earlier."""
        deadline = self._exchange.deadline
        if deadline < connection.conn.read_deadline:
            connection.conn.set_read_deadline(deadline)

    def _need_task(self) -> None:
        if self._connection is not None:
            self._connection.unpark()
        self._exchange.go_on()

    # in a task

    async def run(self) -> None:
        """Try, or go on after `begin`. Raise UpstreamError if the upstream fails; Disconnected, or a group of it, if
        the client is gone."""
        try:
            connection = self._connection
            if connection is None:
                connection = await self._connect()
                self._use(connection)
            else:
                connection.unpark()
            if self._failure is not None:
                self._failure.reraise()
            await self._request_and_respond(connection)
        except UpstreamError as error:
            error.started = self._response is not None
            error.stale = self._is_stale(error)
            if not error.stale:
                # before others may get its place
                self.upstream.failed(error.failure)
            raise
        finally:
            self._leave()

    async def _connect(self) -> UpstreamConnection:
        connection = None if self._fresh else self.upstream.pop_idle()
        if connection is not None:
            connection.unpark()
            return connection
        timeouts = self._timeouts
        return await self.upstream.connect(self._begun + min(timeouts.upstream_connect, timeouts.upstream_per_try))

    def _is_stale(self, error: UpstreamError) -> bool:
        connection = self._connection
        soon = self._shared.clock.now() - self._begun <= _STALE_WITHIN
        was_idle = connection is not None and connection.served > 0 and not connection.has_begun_response
        return was_idle and error.failure in _STALE and soon and not error.started

    async def _request_and_respond(self, connection: UpstreamConnection) -> None:
        """Send what is left of the request to the upstream, and what is left of the response to the client, which may
        not have taken all of it at the end."""
        progress = connection.progress
        if progress.sent_at == INF:
            if not self._collect():
                await self._upload_and_respond(connection)
                return
            self._refusal = await self._send(connection)
            progress.note_sent(refused=self._refusal is not None)
        await self._respond(connection)

    async def _send(self, connection: UpstreamConnection) -> UpstreamError | None:
        """Send the whole request. Return why the upstream does not take all of it, None if it does."""
        try:
            await connection.send(b"".join(self._parts), True)
        except UpstreamError as error:
            return bare(error)
        return None

    async def _upload_and_respond(self, connection: UpstreamConnection) -> None:
        """Send the rest of a body that the client is still sending, and pass the response on meanwhile."""
        begun = b"".join(self._parts)
        connection.progress.awaits_client = True
        self._upload = Upload(self._exchange, connection, begun)
        await self._upload.run_beside(partial(self._respond, connection))

    async def _respond(self, connection: UpstreamConnection) -> bool:
        """Send the rest of the upstream's response to the client. Return True if it is complete, False after an
        upgrade."""
        exchange = self._exchange
        reader = connection.reader
        more = True
        try:
            if self._response is None:
                self._start(connection, await connection.receive_head(exchange.request.method))
            if self._response is not None and self._response.status == 101:
                await self._tunnel(connection, self._response)
                return False
            while more:
                if self._send_waits:
                    await self._finish_send(connection)
                piece = connection.next_piece()
                if piece is None:
                    piece = await connection.receive_piece()
                more = not reader.at_end
                if exchange.holds_head and not more and exchange.receives and exchange.request.chunked:
                    # the client is sending what will not be read: nobody knows how much
                    exchange.writer.must_close = True
                self._send_waits = not exchange.try_send(piece, more)
        except DeadlineExceeded as late:
            raise self._why_late(connection) from late
        self.upstream.succeeded()
        return True

    async def _finish_send(self, connection: UpstreamConnection) -> None:
        """Wait until the client takes more of the response, or let other tasks run."""
        progress, waits = connection.progress, self._exchange.waits_for_peer
        if waits:
            progress.waited_for_client_until = INF
        await self._exchange.finish_send()
        if waits:
            progress.waited_for_client_until = self._shared.clock.now()

    async def _tunnel(self, connection: UpstreamConnection, response: Response) -> None:
        exchange = self._exchange
        tunnel = Tunnel(connection, self._shared.clock, self._timeouts.upstream_idle)
        self.upstream.succeeded()
        await exchange.upgrade(tunnel, [(b"upgrade", response.upgrade), *response_fields(response.headers)])
        await tunnel.run()
        failure = tunnel.failure
        if failure is not None:
            # the client was told by the end of its connection
            self.upstream.broke_off(failure)
            line, address = exchange.request.line, self.upstream.address
            _log.warning("%s: %s: the upstream has failed (%s): the tunnel has broken off", line, address, failure)

    # in a task or without one

    def _use(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        connection.begin_try(self._timeouts, self._begun)

    def _collect(self) -> bool:
        """Collect what has come of the body. Return True if that is all of it."""
        exchange = self._exchange
        chunked = exchange.request.chunked
        while not exchange.body_done:
            piece = exchange.try_receive()
            if piece is None:
                return False
            self._parts.append(framed(piece, chunked, exchange.body_done))
        return True

    def _start(self, connection: UpstreamConnection, response: Response) -> None:
        """Begin the response to the client, unless it is a 101: then nothing was sent yet."""
        connection.progress.head_came = True
        status = response.status
        if status != 101:
            fields = response_fields(response.headers)
            self._exchange.start(status, fields if status != 426 else fields + required_upgrade(response.headers))
        elif not (self._upgrade and response.upgrade.lower() == self._upgrade.lower()):
            raise UpstreamError(Failure.MALFORMED, "the upstream has switched to a protocol that nobody asked for")
        self._response = response

    def _leave(self) -> None:
        """Give up the upstream and its connection, which is kept after a whole request and a whole response.
        Idempotent."""
        if self._has_left:
            return
        self._has_left = True
        if self._connection is not None:
            self.upstream.take_back(self._connection, self._shared.timeouts.upstream_reuse)
        self._shared.balancer.release(self.upstream)

    def _why_late(self, connection: UpstreamConnection) -> UpstreamError:
        """Return the error of a deadline that has passed for the upstream."""
        upload, progress = self._upload, connection.progress
        if progress.head_came:
            return UpstreamError(Failure.IDLE_TIMEOUT, "the upstream has not gone on with its response")
        refusal = self._refusal if upload is None else upload.error
        if refusal is not None:
            # not the one that is kept: the traceback of what is raised refers to this object
            return UpstreamError(refusal.failure, refusal.detail)
        if progress.deadline <= self._shared.clock.now():
            return UpstreamError(Failure.TRY_TIMEOUT, "the upstream has not answered this try in time")
        return UpstreamError(Failure.FIRST_BYTE_TIMEOUT, "the upstream has not answered in time")
