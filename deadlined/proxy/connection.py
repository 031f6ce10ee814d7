"""One connection to an upstream: a request goes out, its response comes in, and then it waits for the next request.

Facts      A server closes connections that are idle for too long, and does not ask before.
Hazard     A request that is sent while its upstream closes is lost, and only some may be sent again. A response that
           nobody has asked for would be taken for the answer to the next request.
Answer     An idle connection is parked in the poller: whatever comes on it, an end or bytes, removes it at once. It is
           kept for a shorter time than servers keep theirs, or than the upstream announces.
Cost       No task; a deadline per idle connection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from ..errors import DeadlineExceeded
from ..http import BadResponse, Limits, Response, ResponseReader, TruncatedResponse
from ..net import BrokenResourceError, ClosedResourceError, Conn
from ..runtime import ReadyCallback
from .errors import Failure, UpstreamError
from .options import INF
from .progress import Progress

# bytes of a receive
_SIZE: Final = 64 * 1024

# seconds for which a connection is kept at most, if the upstream says how long it keeps it itself (`Keep-Alive:
# timeout=60`), and the seconds before that at which it is closed
_REUSE_MOST: Final = 60.0
_MARGIN: Final = 1.0

# interim responses that may come before one
_INTERIM: Final = 64

# of responses: applications may send long cookies and policies
_LIMITS: Final = Limits(max_head=64 * 1024, max_headers=200)


class UpstreamConnection(ReadyCallback):
    """A connection to an upstream, for one request at a time. `served`: the responses that came on it so far."""

    __slots__ = ("_announced", "_removed", "conn", "reader", "served")

    def __init__(self, conn: Conn) -> None:
        self.conn: Conn = conn
        self.reader: ResponseReader = ResponseReader(_LIMITS)
        self.served: int = 0
        # seconds for which the upstream keeps it, as it has said last; None if it has not
        self._announced: float | None = None
        # called when it must not be used any more; None while a request has it
        self._removed: Callable[[UpstreamConnection], object] | None = None

    async def send(self, data: bytes, idle: float) -> None:
        """Send `data`. The upstream must take more of it every `idle` seconds. Raise UpstreamError."""
        conn = self.conn
        try:
            sent = conn.try_send(data)
            if sent < len(data):
                while sent < len(data):
                    conn.set_write_timeout(idle)
                    await conn.wait_writable()
                    sent += conn.send_ready(memoryview(data)[sent:])
                # the next send may come much later
                conn.set_write_deadline(INF)
        except DeadlineExceeded as late:
            raise UpstreamError(Failure.IDLE_TIMEOUT, "the upstream does not read the request") from late
        except (BrokenResourceError, ClosedResourceError) as error:
            raise UpstreamError(Failure.RESET, "the upstream has reset the connection") from error

    async def receive_head(self, method: str, progress: Progress) -> Response:
        """Receive the head of the response to a request of `method`. Interim responses are ignored, but 101 is the last
        one. Raise UpstreamError; DeadlineExceeded when `progress` says so."""
        interim = 0
        try:
            while interim <= _INTERIM:
                response = self.reader.next_response(method)
                if response is None:
                    progress.apply()
                    await self._receive_more()
                elif response.status >= 200 or response.status == 101:
                    self._note_announced(response)
                    return response
                else:
                    interim += 1
        except BadResponse as bad:
            raise _error_of(bad) from bad
        raise UpstreamError(Failure.MALFORMED, f"the upstream has sent more than {_INTERIM} interim responses")

    def next_piece(self) -> bytes | None:
        """Return the next piece of the body, b"" at its end; None if more must be received. Raise UpstreamError."""
        try:
            return self.reader.next_body()
        except BadResponse as bad:
            raise _error_of(bad) from bad

    async def receive_piece(self, progress: Progress) -> bytes:
        """Receive the next piece of the body, b"" at its end. The upstream must send something when `progress` says so.
        Raise UpstreamError."""
        try:
            while True:
                piece = self.next_piece()
                if piece is not None:
                    return piece
                progress.apply()
                await self._receive_more()
        except DeadlineExceeded as late:
            raise UpstreamError(Failure.IDLE_TIMEOUT, "the upstream has not gone on with its response") from late
        except BadResponse as bad:
            raise _error_of(bad) from bad

    async def receive_raw(self) -> bytes:
        """Receive what comes after a 101, b"" at the end, without a deadline. Raise UpstreamError."""
        early = self.reader.take_rest()
        if early:
            return early
        self.conn.set_read_deadline(INF)
        return await self._receive()

    def park(self, removed: Callable[[UpstreamConnection], object], reuse: float) -> bool:
        """Wait for the next request, for `reuse` seconds unless the upstream has announced how long it waits.
        `removed(self)` is called when something comes before that, or nothing in time: the connection is closed then.
        Return False, and close it, if bytes or an end have come already."""
        conn = self.conn
        self.served += 1
        conn.set_read_timeout(reuse if self._announced is None else self._announced)
        # what was received last may have been all there was, which only the kernel knows
        if self.reader.buffered or not (conn.call_when_readable(self) or self._has_nothing()):
            conn.close()
            return False
        self._removed = removed
        return True

    def unpark(self) -> None:
        """Begin to serve a request."""
        self._removed = None
        self.conn.cancel_call()

    def on_ready(self) -> None:
        removed, self._removed = self._removed, None
        if removed is not None:
            self.conn.close()
            removed(self)

    def close(self) -> None:
        """Close after a whole response. Idempotent."""
        self.conn.close()

    def abort(self) -> None:
        """Close in the middle of a request or response: the upstream learns of it at once, by a reset. Idempotent."""
        self.conn.abort()

    def _has_nothing(self) -> bool:
        """Return True if the kernel has nothing, and the connection is parked now."""
        try:
            return self.conn.receive_ready() is None and self.conn.call_when_readable(self)
        except (BrokenResourceError, ClosedResourceError):
            return False

    async def _receive_more(self) -> None:
        """Receive bytes for the reader. Raise BadResponse if the upstream ends in the middle of a response,
        UpstreamError if it ends before the first byte of one."""
        data = await self._receive()
        if data:
            self.reader.feed(data)
        elif self.reader.at_end and not self.reader.buffered:
            raise UpstreamError(Failure.CLOSED, "the upstream has closed the connection without an answer")
        else:
            self.reader.end()

    async def _receive(self) -> bytes:
        conn = self.conn
        try:
            data = conn.try_receive(_SIZE)
            while data is None:
                try:
                    await conn.wait_readable()
                except DeadlineExceeded:
                    # bytes that came in time may have waited for this turn of the loop
                    data = conn.receive_ready(_SIZE)
                    if data is None:
                        raise
                else:
                    data = conn.receive_ready(_SIZE)
            return data
        except (BrokenResourceError, ClosedResourceError) as error:
            raise UpstreamError(Failure.RESET, "the upstream has reset the connection") from error

    def _note_announced(self, response: Response) -> None:
        for name, value in response.headers:
            if name == b"keep-alive":
                seconds = keep_alive_timeout(value)
                self._announced = None if seconds is None else min(max(seconds - _MARGIN, 0.0), _REUSE_MOST)


def _error_of(bad: BadResponse) -> UpstreamError:
    if isinstance(bad, TruncatedResponse):
        return UpstreamError(Failure.CLOSED, "the upstream has closed the connection in the middle of its response")
    return UpstreamError(Failure.MALFORMED, f"the upstream's response is malformed: {bad.detail}")


@lru_cache(maxsize=64)
def keep_alive_timeout(value: bytes) -> float | None:
    """Return the seconds that a field Keep-Alive announces, None if it announces none."""
    for part in value.split(b","):
        name, _, seconds = part.strip().partition(b"=")
        if name.lower() == b"timeout" and seconds.isdigit() and len(seconds) < 10:
            return float(seconds)
    return None
