"""One request on its way: to an upstream, again to another one if that is safe, and its response back.

Facts      A response may come before the request's body is complete. An upstream may fail at any moment, and may have
           done what the request asks for.
Hazard     A request that is repeated may be done twice (RFC 9110, 9.2.2). A response that was cut off may look
           complete. Retries multiply the load of upstreams that fail because of their load.
Answer     A request is sent again only if nothing was sent back, and if no upstream has seen it or it is idempotent and
           has no body; and within a budget. A response that breaks off resets the client's connection.
           What is forwarded is written anew from what was parsed.
Cost       A task beside the handler's own, only for a body that has not come with its head.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ..errors import DeadlineExceeded
from ..http import Disconnected, Exchange, ResponseCut, problem, request_head
from ..runtime import Group, open_group, within
from ..timing import sleep
from .connection import INF, UpstreamConnection
from .errors import Failure, Overloaded, UpstreamError
from .fields import IDEMPOTENT, response_fields
from .shared import Shared
from .tunnel import Tunnel
from .upload import Upload, framed
from .upstream import Upstream

if TYPE_CHECKING:
    from ..http import Response

_log: Final = logging.getLogger("deadlined.proxy")

# how often a request is sent at most
_TRIES: Final = 3

# seconds before a request is sent once more to upstreams of which none has accepted a connection
_PAUSE: Final = 0.1

# seconds after which a client that got 503 is asked to come again
_RETRY_AFTER: Final = b"5"

_UNSEEN: Final = frozenset((Failure.CONNECT, Failure.CONNECT_TIMEOUT))
_STALE: Final = frozenset((Failure.CLOSED, Failure.RESET))


class Forwarder:
    """Forwards the request of one exchange."""

    __slots__ = ("_exchange", "_fresh", "_head", "_shared", "_started", "_tried", "_tries", "_upgrade", "_upload")

    def __init__(self, exchange: Exchange, shared: Shared) -> None:
        self._exchange = exchange
        self._shared = shared
        self._upgrade, fields = shared.fields(exchange)
        request = exchange.request
        self._head = request_head(request.method, request.path_and_query, fields)
        # where it was sent already
        self._tried: list[Upstream] = []
        self._tries = 0
        # an idle connection was stale: use a new one
        self._fresh = False
        # the response to the client has begun
        self._started = False
        # the body that is sent while the response is awaited, None if there is none
        self._upload: Upload | None = None

    async def run(self) -> None:
        """Forward the request, and answer it. Raise ResponseCut if the response has broken off, Disconnected if the
        client is gone."""
        shared = self._shared
        shared.budget.deposit()
        error = await self._try_once()
        while isinstance(error, UpstreamError) and self._may_repeat(error):
            shared.retries += 1
            self._log(logging.INFO, error, "sent once more")
            if error.failure is Failure.CONNECT and len(self._tried) >= shared.count:
                # it may be starting again
                await sleep(_PAUSE)
            error = await self._try_once()
        if isinstance(error, UpstreamError):
            self._log(logging.WARNING, error, f"answered with {error.status}")
            await self._answer(error.status, str(error.failure), error.detail)
        elif error is not None:
            shared.overloaded += 1
            _log.warning("%s: %s: answered with 503", self._exchange.request.line, error.detail)
            await self._answer(503, "overloaded", error.detail)

    async def _try_once(self) -> UpstreamError | Overloaded | None:
        """Send the request to an upstream, and its response to the client. Return why that has failed, None if it has
        not."""
        try:
            await self._try()
        except (UpstreamError, Overloaded) as error:
            return error
        return None

    async def _try(self) -> None:
        shared = self._shared
        upstream = await shared.balancer.acquire(self._tried, shared.timeouts.upstream_queue)
        self._tries += 1
        try:
            await self._send_to(upstream)
        except UpstreamError as error:
            self._note_failure(upstream, error)
            raise
        finally:
            shared.balancer.release(upstream)

    def _note_failure(self, upstream: Upstream, error: UpstreamError) -> None:
        error.upstream = str(upstream.address)
        if self._fresh and upstream not in self._tried:
            # an idle connection that was closed when the request came says nothing about the upstream
            return
        if upstream not in self._tried:
            self._tried.append(upstream)
        upstream.failed(error.failure)
        if self._started:
            self._log(logging.WARNING, error, "the response has broken off")
            raise ResponseCut(error.status, error.detail) from error

    def _log(self, level: int, error: UpstreamError, outcome: str) -> None:
        line = self._exchange.request.line
        _log.log(level, "%s: %s: %s (%s): %s", line, error.upstream, error.detail, error.failure, outcome)

    def _may_repeat(self, error: UpstreamError) -> bool:
        request = self._exchange.request
        if self._tries >= _TRIES:
            return False
        is_stale = self._fresh and not self._tried
        if error.failure in _UNSEEN:
            return self._shared.budget.withdraw()
        if error.failure is Failure.FIRST_BYTE_TIMEOUT or request.method not in IDEMPOTENT or request.has_body:
            return False
        return is_stale or self._shared.budget.withdraw()

    async def _send_to(self, upstream: Upstream) -> None:
        shared = self._shared
        begun = shared.clock.now()
        by = begun + shared.timeouts.upstream_per_try
        connection = None if self._fresh else upstream.take_idle()
        if connection is None:
            connect_by = min(begun + shared.timeouts.upstream_connect, by)
            connection = await upstream.connect(connect_by)
        whole = False
        try:
            whole = await self._exchange_with(connection, upstream, by)
        except UpstreamError as error:
            self._fresh = not self._fresh and connection.served > 0 and error.failure in _STALE and not self._started
            raise
        finally:
            if whole:
                upstream.keep(connection)
            else:
                connection.abort()

    async def _exchange_with(self, connection: UpstreamConnection, upstream: Upstream, by: float) -> bool:
        """Send the request on `connection`, and its response to the client. `by`: when the head of the response must
        have come. Return True if the connection can be used again."""
        exchange = self._exchange
        chunked = exchange.request.chunked
        parts = [self._head]
        while not exchange.body_done:
            piece = exchange.try_receive()
            if piece is None:
                return await self._exchange_uploading(connection, upstream, by, b"".join(parts))
            parts.append(framed(piece, chunked, exchange.body_done))
        idle = self._shared.timeouts.upstream_idle
        await connection.send(b"".join(parts), idle)
        now = self._shared.clock.now()
        connection.conn.set_read_deadline(min(now + self._shared.timeouts.upstream_first_byte, by))
        return await self._respond(connection, upstream, by)

    async def _exchange_uploading(
        self, connection: UpstreamConnection, upstream: Upstream, by: float, begun: bytes
    ) -> bool:
        """Do what `_exchange_with` does for a body that has not come yet: send it while the response is awaited."""
        timeouts = self._shared.timeouts
        upload = self._upload = Upload(self._exchange, connection, begun, timeouts, by)
        connection.conn.set_read_deadline(by)
        outcome = _Outcome()
        await within(open_group(), partial(self._respond_beside, connection, upstream, by, outcome))
        if outcome.error is not None:
            raise outcome.error
        return outcome.whole and upload.done

    async def _respond_beside(
        self, connection: UpstreamConnection, upstream: Upstream, by: float, outcome: _Outcome, group: Group
    ) -> None:
        assert self._upload is not None
        group.start_soon(self._upload.run)
        try:
            outcome.whole = await self._respond(connection, upstream, by)
        except UpstreamError as error:
            # a group would wrap it
            outcome.error = error
        group.cancel()

    async def _respond(self, connection: UpstreamConnection, upstream: Upstream, by: float) -> bool:
        """Send the upstream's response to the client. Return True if the connection can be used again."""
        response = await self._receive_head(connection, by)
        upstream.succeeded()
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
                piece = await connection.receive_piece(self._idle)
            more = not reader.at_end
            if not exchange.try_send(piece, more):
                await exchange.finish_send()
        return response.keep_alive

    @property
    def _idle(self) -> float:
        """How long the upstream may be silent in its response: while it waits for the client's body, as long as that
        takes."""
        if self._upload is not None and self._upload.waits_for_client:
            return INF
        return self._shared.timeouts.upstream_idle

    async def _receive_head(self, connection: UpstreamConnection, by: float) -> Response:
        upload = self._upload
        try:
            response = await connection.receive_head(self._exchange.request.method)
        except DeadlineExceeded as late:
            if upload is not None and upload.error is not None:
                raise upload.error from late
            if by <= self._shared.clock.now():
                raise UpstreamError(Failure.TRY_TIMEOUT, "the upstream has not answered this try in time") from late
            raise UpstreamError(Failure.FIRST_BYTE_TIMEOUT, "the upstream has not answered in time") from late
        if upload is not None:
            upload.head_came = True
        if response.status == 101 and not (self._upgrade and response.upgrade):
            raise UpstreamError(Failure.MALFORMED, "the upstream has switched to a protocol that nobody asked for")
        return response

    async def _tunnel(self, connection: UpstreamConnection, response: Response) -> None:
        exchange = self._exchange
        tunnel = Tunnel(connection, self._shared.clock, self._shared.timeouts.upstream_idle)
        fields = [(b"upgrade", response.upgrade), *response_fields(response.headers)]
        await exchange.upgrade(tunnel, fields)
        self._started = True
        await tunnel.run()

    async def _answer(self, status: int, reason: str, detail: str) -> None:
        """Answer in the proxy's own name."""
        exchange = self._exchange
        body = problem(status, reason, detail)
        fields = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))]
        if status == 503:
            fields.append((b"retry-after", _RETRY_AFTER))
        try:
            exchange.start(status, fields)
            await exchange.send(body, False)
        except Disconnected:
            return


class _Outcome:
    """What has become of a response that was awaited beside an upload."""

    __slots__ = ("error", "whole")

    def __init__(self) -> None:
        self.error: UpstreamError | None = None
        self.whole = False
