"""One try of a request at one upstream: it goes out, and the response goes to the client.

Facts      A response may come before the request's body is complete. An upstream may fail at any moment.
Hazard     A response that was cut off may look complete. A connection that was left in the middle would give its rest
           to the next request.
Answer     A failure says whether anything was sent back. A connection is kept only after a whole request and a whole
           response.
Cost       A task beside the handler's own, only for a body that has not come with its head.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ..errors import DeadlineExceeded
from ..http import Exchange
from ..runtime import Group, open_group, within
from .connection import UpstreamConnection
from .errors import Failure, UpstreamError
from .fields import response_fields
from .progress import Progress
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


class Attempt:
    """Sends `head` and the body of `exchange` to `upstream`, once. `upgrade`: the protocol that is asked for, b"" for
    none. `fresh`: on a new connection."""

    __slots__ = ("_begun", "_exchange", "_fresh", "_head", "_shared", "_started", "_upgrade", "_upload", "_upstream")

    def __init__(
        self, exchange: Exchange, shared: Shared, upstream: Upstream, head: bytes, upgrade: bytes, fresh: bool
    ) -> None:
        self._exchange = exchange
        self._shared = shared
        self._upstream = upstream
        self._head = head
        self._upgrade = upgrade
        self._fresh = fresh
        self._begun = shared.clock.now()
        # the response to the client has begun
        self._started = False
        # the body that is sent while the response is awaited, None if there is none
        self._upload: Upload | None = None

    async def run(self) -> None:
        """Try. Raise UpstreamError if the upstream fails; Disconnected, or a group of it, if the client is gone."""
        upstream = self._upstream
        upstream.count_try()
        timeouts = self._shared.timeouts
        deadline = self._begun + timeouts.upstream_per_try
        connection = None if self._fresh else upstream.pop_idle()
        if connection is None:
            connection = await upstream.connect(min(self._begun + timeouts.upstream_connect, deadline))
        whole = False
        try:
            whole = await self._run_on(connection, Progress(connection.conn, self._shared.clock, timeouts, deadline))
        except UpstreamError as error:
            error.started = self._started
            error.stale = self._is_stale(connection, error)
            raise
        finally:
            if whole:
                upstream.keep(connection, timeouts.upstream_reuse)
            else:
                connection.abort()

    def _is_stale(self, connection: UpstreamConnection, error: UpstreamError) -> bool:
        soon = self._shared.clock.now() - self._begun <= _STALE_WITHIN
        return connection.served > 0 and error.failure in _STALE and soon and not self._started

    async def _run_on(self, connection: UpstreamConnection, progress: Progress) -> bool:
        """Send the request on `connection`, and its response to the client. Return True if the connection can be used
        again."""
        exchange = self._exchange
        chunked = exchange.request.chunked
        parts = [self._head]
        while not exchange.body_done:
            piece = exchange.try_receive()
            if piece is None:
                return await self._upload_and_respond(connection, progress, b"".join(parts))
            parts.append(framed(piece, chunked, exchange.body_done))
        await connection.send(b"".join(parts), self._shared.timeouts.upstream_idle)
        progress.note_sent()
        return await self._respond(connection, progress)

    async def _upload_and_respond(self, connection: UpstreamConnection, progress: Progress, begun: bytes) -> bool:
        """Do what `_run_on` does for a body that has not come yet: send it while the response is awaited."""
        self._upload = Upload(self._exchange, connection, begun, progress, self._shared.timeouts.upstream_idle)
        outcome = _Outcome()
        await within(open_group(), partial(self._respond_beside, connection, progress, outcome))
        if outcome.error is not None:
            raise outcome.error
        return outcome.whole and self._upload.done

    async def _respond_beside(
        self, connection: UpstreamConnection, progress: Progress, outcome: _Outcome, group: Group
    ) -> None:
        assert self._upload is not None
        group.start_soon(self._upload.run)
        try:
            outcome.whole = await self._respond(connection, progress)
        except UpstreamError as error:
            # a group would wrap it
            outcome.error = error
        group.cancel()

    async def _respond(self, connection: UpstreamConnection, progress: Progress) -> bool:
        """Send the upstream's response to the client. Return True if the connection can be used again."""
        response = await self._receive_head(connection, progress)
        if response.status == 101:
            await self._tunnel(connection, response)
            return False
        exchange = self._exchange
        exchange.start(response.status, response_fields(response.headers))
        self._started = True
        reader = connection.reader
        more = True
        while more:
            piece = connection.next_piece()
            if piece is None:
                piece = await connection.receive_piece(progress)
            more = not reader.at_end
            if not exchange.try_send(piece, more):
                await exchange.finish_send()
        self._upstream.succeeded()
        return response.keep_alive

    async def _receive_head(self, connection: UpstreamConnection, progress: Progress) -> Response:
        try:
            response = await connection.receive_head(self._exchange.request.method, progress)
        except DeadlineExceeded as late:
            upload = self._upload
            if upload is not None and upload.error is not None:
                raise upload.error from late
            if progress.deadline <= self._shared.clock.now():
                raise UpstreamError(Failure.TRY_TIMEOUT, "the upstream has not answered this try in time") from late
            raise UpstreamError(Failure.FIRST_BYTE_TIMEOUT, "the upstream has not answered in time") from late
        progress.head_came = True
        if response.status == 101 and not (self._upgrade and response.upgrade.lower() == self._upgrade.lower()):
            raise UpstreamError(Failure.MALFORMED, "the upstream has switched to a protocol that nobody asked for")
        return response

    async def _tunnel(self, connection: UpstreamConnection, response: Response) -> None:
        exchange = self._exchange
        tunnel = Tunnel(connection, self._shared.clock, self._shared.timeouts.upstream_idle)
        self._started = True
        self._upstream.succeeded()
        await exchange.upgrade(tunnel, [(b"upgrade", response.upgrade), *response_fields(response.headers)])
        await tunnel.run()
        failure = tunnel.failure
        if failure is not None:
            # the client was told by the end of its connection
            self._upstream.failed(failure)
            line, address = exchange.request.line, self._upstream.address
            _log.warning("%s: %s: the upstream has failed (%s): the tunnel has broken off", line, address, failure)


class _Outcome:
    """What has become of a response that was awaited beside an upload."""

    __slots__ = ("error", "whole")

    def __init__(self) -> None:
        self.error: UpstreamError | None = None
        self.whole = False
