"""One connection to an upstream: a request goes out, its response comes in, and then it waits for the next request.

Facts      A server closes connections that are idle for too long, and does not ask before.
Hazard     A request that is sent while its upstream closes is lost, and only some may be sent again. A response that
           nobody has asked for would be taken for the answer to the next request.
Answer     An idle connection is parked in the poller: whatever comes on it, an end or bytes, removes it at once. It is
           kept for a shorter time than servers keep theirs, or than the upstream announces. Bytes also say that the
           next ones may come a moment later, when a request has the connection: then nothing can tell them from its
           answer. So the upstream is told of them (`unasked`), and keeps no connections for some time.
           The response to a request is awaited in the poller, too, or by a task that receives.
           Whether another request may follow is known here alone (`is_reusable`): from the bytes of the request that
           the kernel has taken, and those of the response that were given out. No caller says so.
Cost       No task; a deadline per idle connection.
"""

from __future__ import annotations

from functools import lru_cache
from socket import AF_UNIX
from typing import Final

from ..errors import DeadlineExceeded
from ..http import BadResponse, Limits, Response, ResponseReader, TruncatedResponse
from ..net import BrokenResourceError, ClosedResourceError, Conn
from ..poll import Clock
from ..runtime import ReadyCallback
from .errors import Failure, UpstreamError
from .options import INF, ProxyTimeouts
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

# before the first try
_DEFAULTS: Final = ProxyTimeouts()


class ConnectionUser:
    """What uses a connection without a task: a request that waits for its response, or between requests the upstream.
    An abstract base class."""

    __slots__ = ()

    def connection_ready(self, connection: UpstreamConnection) -> None:
        """Call `resume` or `discard` of the connection: the upstream may have sent something, or the deadline has
        passed. Must not raise."""
        raise NotImplementedError


class UpstreamConnection(ReadyCallback):
    """A connection to an upstream, for one request at a time. `progress`: that of the current try. `request_sent`: the
    kernel has taken all of its request. `served`: the responses that came on it so far. `unasked`: bytes came on it
    that no request has asked for."""

    __slots__ = (
        "_announced",
        "_clock",
        "_interim",
        "_is_unix",
        "_keeps_alive",
        "_user",
        "_was_full",
        "conn",
        "progress",
        "reader",
        "request_sent",
        "served",
        "unasked",
    )

    def __init__(self, conn: Conn, clock: Clock) -> None:
        self.conn: Conn = conn
        self._clock: Clock = clock
        self.progress: Progress = Progress(conn, clock, _DEFAULTS, 0.0)
        self.reader: ResponseReader = ResponseReader(_LIMITS)
        self.request_sent: bool = False
        self.served: int = 0
        self.unasked: bool = False
        # seconds for which the upstream keeps it, as it has said last; None if it has not
        self._announced: float | None = None
        self._is_unix: bool = conn.socket.family == AF_UNIX
        # the last receive has got as much as it asked for
        self._was_full: bool = False
        # interim responses to the current request
        self._interim: int = 0
        # the head of its response has come, and says that HTTP goes on after it
        self._keeps_alive: bool = False
        # what is called when the connection is ready; None while a task uses the connection, or nothing does
        self._user: ConnectionUser | None = None

    @property
    def has_begun_response(self) -> bool:
        """True if some of the response to the current request has come, and its final head is not complete."""
        return self.reader.buffered > 0 or self._interim > 0

    @property
    def is_reusable(self) -> bool:
        """True once another request may follow: the kernel has taken all of the current one, and all of its response
        was given out, after which the upstream goes on with HTTP."""
        return self.request_sent and self._keeps_alive and self.reader.at_end

    def begin_try(self, timeouts: ProxyTimeouts, begun: float) -> None:
        """Begin the progress of a try under these timeouts, which count from `begun`."""
        self.progress = Progress(self.conn, self._clock, timeouts, begun)

    def send_now(self, data: bytes) -> int:
        """Send as much of `data`, a whole request, as the kernel takes at once, and return how much that was. Raise
        UpstreamError."""
        try:
            sent = self.conn.try_send(data)
        except (BrokenResourceError, ClosedResourceError) as error:
            raise _reset_error() from error
        self.request_sent = sent == len(data)
        return sent

    async def send(self, data: bytes, last: bool) -> None:
        """Send `data`, with which the request ends if it is the `last` of it. The upstream must take more of it by
        `progress.write_deadline`. Raise UpstreamError."""
        conn = self.conn
        try:
            sent = conn.try_send(data)
            if sent < len(data):
                while sent < len(data):
                    await self._wait_writable()
                    sent += conn.send_ready(memoryview(data)[sent:])
                # the next send may come much later
                conn.set_write_deadline(INF)
            self.request_sent = last
        except DeadlineExceeded as late:
            raise UpstreamError(Failure.IDLE_TIMEOUT, "the upstream does not read the request") from late
        except (BrokenResourceError, ClosedResourceError) as error:
            raise _reset_error() from error

    def next_head(self, method: str) -> Response | None:
        """Return the head of the response to a request of `method`; None if more must be received. Interim responses
        are ignored, but 101 is the last one. Raise UpstreamError."""
        try:
            while self._interim <= _INTERIM:
                response = self.reader.next_response(method)
                if response is None:
                    return None
                if response.status >= 200 or response.status == 101:
                    self._interim = 0
                    self._keeps_alive = response.keep_alive and response.status != 101
                    self._note_announced(response)
                    return response
                self._interim += 1
        except BadResponse as bad:
            raise _error_of(bad) from bad
        raise UpstreamError(Failure.MALFORMED, f"the upstream has sent more than {_INTERIM} interim responses")

    async def receive_head(self, method: str) -> Response:
        """Receive what `next_head` returns. Raise UpstreamError; DeadlineExceeded at `progress.read_deadline`."""
        while True:
            response = self.next_head(method)
            if response is not None:
                return response
            await self._receive_more()

    def next_piece(self) -> bytes | None:
        """Return the next piece of the body, b"" at its end; None if more must be received. Raise UpstreamError."""
        try:
            return self.reader.next_body()
        except BadResponse as bad:
            raise _error_of(bad) from bad

    async def receive_piece(self) -> bytes:
        """Receive the next piece of the body, b"" at its end. Raise UpstreamError; DeadlineExceeded at
        `progress.read_deadline`."""
        while True:
            piece = self.next_piece()
            if piece is not None:
                return piece
            await self._receive_more()

    async def receive_raw(self) -> bytes:
        """Receive what comes after a 101, b"" at the end, without a deadline. Raise UpstreamError."""
        early = self.reader.take_rest()
        if early:
            return early
        self.conn.set_read_deadline(INF)
        return await self._receive()

    def receive_rest(self) -> bytes:
        """Return what has come after a 101 and was not received yet, without waiting: as much as one receive takes. b""
        if there is nothing, also if the upstream is gone."""
        rest = self.reader.take_rest()
        try:
            return rest + (self.conn.receive_ready(_SIZE) or b"")
        except (BrokenResourceError, ClosedResourceError):
            return rest

    def park(self, user: ConnectionUser, reuse: float) -> bool:
        """Wait for the next request, for `reuse` seconds unless the upstream has announced how long it waits. `user` is
        called when something comes before that, or nothing in time, and must `discard` the connection. Return False if
        it cannot be kept: bytes or an end have come already, or the time is 0."""
        assert self.is_reusable, "the request or its response is not complete"
        conn = self.conn
        self._user = None
        self.request_sent = self._keeps_alive = False
        self.served += 1
        conn.set_read_timeout(reuse if self._announced is None else self._announced)
        if self.reader.buffered:
            self.unasked = True
        elif self.call_again() or (self._check_unasked() and conn.call_when_readable(self)):
            self._user = user
            return True
        return False

    def discard(self) -> None:
        """Close, after a call of the user that has parked it. Bytes that have come are `unasked`."""
        self._user = None
        self._check_unasked()
        self.conn.close()

    def lend(self, user: ConnectionUser) -> None:
        """Begin to serve a request of `user`, which is called when bytes may have come. The connection was parked."""
        self._user = user

    def call_again(self) -> bool:
        """Have the user called when more may have come. Return False if it may have come already."""
        return not self._may_have_more() and self.conn.call_when_readable(self)

    def resume(self) -> bool:
        """Receive bytes for the reader, after a call of the user. Return False if none have come: the user will be
        called again. Raise UpstreamError, also if the upstream ends in the middle of a response; DeadlineExceeded."""
        conn = self.conn
        data: bytes | None = None
        try:
            while data is None:
                if not conn.resume_readable(self):
                    return False
                data = conn.receive_ready(_SIZE)
        except DeadlineExceeded:
            # bytes that came in time may have waited for this turn of the loop
            data = self._receive_ready()
            if data is None:
                raise
        except (BrokenResourceError, ClosedResourceError) as error:
            raise _reset_error() from error
        self._feed(data)
        return True

    def unpark(self) -> None:
        """Begin to serve a request in a task, or go on there."""
        self._user = None
        self.conn.cancel_call()

    def on_ready(self) -> None:
        if self._user is not None:
            self._user.connection_ready(self)

    def close(self) -> None:
        """Close after a whole response. Idempotent."""
        self.conn.close()

    def abort(self) -> None:
        """Close by a reset: in the middle of a request or response, of which the upstream learns at once, or to free
        the port at once. Idempotent."""
        self._user = None
        self.conn.abort()

    def _may_have_more(self) -> bool:
        """Return True if bytes or an end may have come that the poller will not report again."""
        # a short read leaves nothing behind on a unix socket unless descriptors are passed, which is not HTTP
        return not self.conn.drained and (not self._is_unix or self._was_full or self.conn.peer_has_left)

    def _check_unasked(self) -> bool:
        """Find out, and note, whether bytes have come that no request has asked for. Return True if neither bytes nor
        an end have come."""
        try:
            # no more than tells: the poller calls this also where memory is short
            data = self.conn.receive_ready(1)
        except (BrokenResourceError, ClosedResourceError):
            return False
        self.unasked = bool(data)
        return data is None

    async def _wait_writable(self) -> None:
        """Wait until the upstream takes more. Raise DeadlineExceeded at `progress.write_deadline`."""
        conn, progress = self.conn, self.progress
        since = progress.clock.now()
        while True:
            conn.set_write_deadline(progress.write_deadline(since))
            try:
                await conn.wait_writable()
                return
            except DeadlineExceeded:
                if progress.write_deadline(since) <= progress.clock.now():
                    raise

    async def _receive_more(self) -> None:
        """Receive bytes for the reader. Raise UpstreamError, also if the upstream ends in the middle of a response;
        DeadlineExceeded at `progress.read_deadline`."""
        self.progress.apply()
        self._feed(await self._receive())

    def _feed(self, data: bytes) -> None:
        self._was_full = len(data) == _SIZE
        if data:
            self.reader.feed(data)
        elif self.reader.at_end and not self.reader.buffered:
            raise UpstreamError(Failure.CLOSED, "the upstream has closed the connection without an answer")
        else:
            try:
                self.reader.end()
            except BadResponse as bad:
                raise _error_of(bad) from bad

    def _receive_ready(self) -> bytes | None:
        try:
            return self.conn.receive_ready(_SIZE)
        except (BrokenResourceError, ClosedResourceError) as error:
            raise _reset_error() from error

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
            raise _reset_error() from error

    def _note_announced(self, response: Response) -> None:
        for name, value in response.headers:
            if name == b"keep-alive":
                seconds = keep_alive_timeout(value)
                self._announced = None if seconds is None else min(max(seconds - _MARGIN, 0.0), _REUSE_MOST)


def _reset_error() -> UpstreamError:
    return UpstreamError(Failure.RESET, "the upstream has reset the connection")


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
