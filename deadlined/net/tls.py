"""TLS over a `Conn`, without a task: the same deadlines, the same methods.

Facts      TLS may have to write in order to read, and holds bytes of both directions outside the socket.
Hazard     A deadline, or a cancellation, in the middle of a send leaves half a record on the wire: whatever follows it
           is garbage to the peer. A connection that waits for its socket while bytes lie in TLS waits for ever, and so
           does one that waits for the answer to bytes that it has not sent.
Answer     `TlsCore` holds everything, and no step of it waits. What is encrypted and not sent stays here, and every
           later send sends it first. While no task waits to send it, the poller does (`_push_later`). `drained` says
           whether there may be anything to receive, here or in the socket.
Cost       Up to BATCH bytes of ciphertext per connection while the peer does not read. `send_all` reports the bytes it
           has encrypted, and not those that the kernel took.
"""

from __future__ import annotations

import socket as stdlib
import ssl
from collections.abc import Awaitable, Sequence
from typing import Final

import trio

from ..errors import DeadlineExceeded
from ..runtime import ReadyCallback, checkpoint
from .conn import Conn
from .errors import BrokenResourceError, ClosedResourceError, closed_error, send_exceeded
from .sockets import RECEIVE_SIZE, Buffer, checked_size, is_writable
from .tls_core import RECORD, TlsCore, cut_records

# bytes that are encrypted before the kernel is asked to take them
BATCH: Final = 64 * 1024

# bytes of ciphertext that may wait although no send has made them: TLS's own answers to a peer that does not read them
_MOST_UNSENT: Final = 4 * BATCH


class TlsConn(trio.abc.HalfCloseableStream):
    """A connected stream through TLS, with the deadlines of the `Conn` below. Make it with `open_tls_stream`, or over
    an accepted Conn with `server_side=True`.

    The methods and the rules are those of `Conn`; the first receive or send does the handshake if `do_handshake` was
    not awaited, but only one task may be in it. A read or a write deadline that has passed, at any time and also in the
    handshake, can be moved and the stream continues. After a write deadline `error.sent` is the number of bytes that
    were encrypted. Those that the kernel has not taken are sent as soon as it takes them, whatever the deadline, so
    continue with the bytes after them, or wait for an answer. A cancelled send leaves the stream whole, too.

    `receive_some` returns b"" after the peer's close_notify. An end without one may be an attacker's and raises
    BrokenResourceError; with `https_compatible`, for protocols that tell the end of a message themselves, it returns
    b"", and `truncated` tells the two apart. Errors of TLS are BrokenResourceErrors whose cause is the SSLError; one is
    that the peer sends more than 64 KiB in a row, or 256 KiB in the handshake, of messages that are TLS's own.

    The context is set to refuse renegotiation. `received` are bytes that were read from `conn` before.
    """

    __slots__ = ("__weakref__", "_core", "_held", "_https_compatible", "_unsent", "conn", "handed_over")

    def __init__(
        self,
        conn: Conn,
        ssl_context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        https_compatible: bool = False,
        received: bytes = b"",
    ) -> None:
        self.conn: Conn = conn
        # bytes of ciphertext that the kernel has taken so far
        self.handed_over: int = 0
        self._https_compatible: bool = https_compatible
        self._core: TlsCore = TlsCore(ssl_context, server_side, server_hostname)
        # ciphertext that the kernel has not taken
        self._unsent: bytes = b""
        # session tickets, which go with the first bytes that are sent: a client that closes without having read them
        # would reset the connection, and the server might lose what it has sent (python-trio/trio#819)
        self._held: bytes = b""
        if received:
            self._core.feed(received)

    @property
    def ssl_object(self) -> ssl.SSLObject:
        """The session, described by `version()`, `cipher()`, `getpeercert()` and `selected_alpn_protocol()`."""
        return self._core.ssl_object

    @property
    def socket(self) -> stdlib.socket:
        """The socket below, for options and addresses."""
        return self.conn.socket

    @property
    def truncated(self) -> bool:
        """True if the peer has ended the connection without a close_notify."""
        return self._core.truncated

    @property
    def cut_in_record(self) -> bool:
        """True if the peer's stream is `truncated` in the middle of a TLS record, and all before that was received. A
        message of TLS itself that comes last, such as a server's session ticket, is taken for such a beginning."""
        return self._core.cut_in_record

    @property
    def unsent(self) -> int:
        """Bytes of ciphertext that the kernel has not taken yet."""
        return len(self._unsent)

    @property
    def drained(self) -> bool:
        """True if `try_receive` would return None, as far as is known: nothing to decrypt is here, and the socket is
        drained."""
        return self.conn.drained and not self._core.holds_bytes

    @property
    def holds_bytes(self) -> bool:
        """True if a receive may succeed, or tell the end, without asking the socket."""
        return self._core.holds_bytes

    @property
    def read_deadline(self) -> float:
        """The read deadline as it was last set; `inf` if there is none."""
        return self.conn.read_deadline

    @property
    def write_deadline(self) -> float:
        """The write deadline as it was last set; `inf` if there is none."""
        return self.conn.write_deadline

    def set_deadline(self, when: float) -> None:
        """Set the read and the write deadline."""
        self.conn.set_deadline(when)

    def set_read_deadline(self, when: float) -> None:
        """Set the read deadline: absolute seconds on the loop's clock; `inf` is none."""
        self.conn.set_read_deadline(when)

    def set_write_deadline(self, when: float) -> None:
        """Set the write deadline: absolute seconds on the loop's clock; `inf` is none."""
        self.conn.set_write_deadline(when)

    def set_timeout(self, seconds: float) -> None:
        """Set both deadlines to the same time, `seconds` from now."""
        self.conn.set_timeout(seconds)

    def set_read_timeout(self, seconds: float) -> None:
        """Set the read deadline, in seconds from now; at or below 0 it expires at once."""
        self.conn.set_read_timeout(seconds)

    def set_write_timeout(self, seconds: float) -> None:
        """Set the write deadline, in seconds from now; at or below 0 it expires at once."""
        self.conn.set_write_timeout(seconds)

    # operations that wait

    async def do_handshake(self) -> None:
        """Set TLS up, or go on with that after a deadline or a cancellation. Both deadlines apply. Idempotent.

        BrokenResourceError if the peer's TLS or certificate is not accepted; the peer was told.
        """
        await checkpoint()
        self.conn.admit_read()
        self.conn.admit_write()
        while not self.shake_ready():
            await (self.wait_writable() if self._unsent else self.conn.wait_readable())

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive the next bytes, at least one; b"" once the peer has ended its side.

        `max_bytes` must be at least 1 (ValueError). DeadlineExceeded and a cancellation lose no bytes.
        """
        size = RECEIVE_SIZE if max_bytes is None else checked_size(max_bytes)
        if not self._core.shaken:
            await self.do_handshake()
        data = None
        if not self.drained:
            await checkpoint()
            data = self.try_receive(size)
        while data is None:
            if self._unsent:
                self._push_later()
            await self.conn.wait_readable()
            data = self.receive_ready(size)
        return data

    async def __anext__(self) -> bytes:
        """Receive the next bytes for `async for`, which ends when the peer has ended its side."""
        data = await self.receive_some()
        if not data:
            raise StopAsyncIteration
        return data

    async def send_all(self, data: Buffer) -> None:
        """Encrypt all of `data` and hand it to the kernel, waiting while its buffer is full."""
        await checkpoint()
        if not self._core.shaken:
            await self.do_handshake()
        sent = 0
        with memoryview(data) as given, given.cast("B") as view:
            size = len(view)
            try:
                sent = self.try_send(view)
                while sent < size or self._unsent:
                    await self.wait_writable()
                    sent += self.send_ready(view[sent:])
            except DeadlineExceeded as late:
                raise send_exceeded(late, sent)  # noqa: B904, it has its cause

    async def wait_send_all_might_not_block(self) -> None:
        """Sleep until the kernel's buffer has room, and what is encrypted was sent. The write deadline applies."""
        await checkpoint()
        self.conn.admit_write()
        while not (self._push() and is_writable(self.conn.socket)):
            await self.wait_writable()

    async def send_eof(self) -> None:
        """End this side of the stream with a close_notify: the peer will read b"". Receiving is still possible, and the
        socket stays open in both directions. Idempotent."""
        await checkpoint()
        if not self._core.shaken:
            await self.do_handshake()
        self.conn.admit_write()
        while not self.end_ready():
            await self.wait_writable()

    async def wait_writable(self) -> None:
        """Sleep until `send_ready` is worth trying. The write deadline applies; after it, or a cancellation, what is
        `unsent` goes out all the same. A checkpoint."""
        # this task sends instead
        self.conn.cancel_writable_call()
        try:
            await self.conn.wait_writable()
        except BaseException:
            self._push_later()
            raise

    async def aclose(self) -> None:
        """Close at once, with a close_notify if the kernel takes it without waiting. Idempotent."""
        self.close()
        await checkpoint()

    # operations that never wait; none is a checkpoint

    def close(self) -> None:
        """Do what `aclose` does, without the checkpoint. May be called from a callback, and in a forked child, where it
        closes the child's descriptor only."""
        if self.conn.socket.fileno() >= 0 and not self.conn.is_inherited:
            self._core.end()
            self._push_if_possible()
        self.conn.close()

    def abort(self) -> None:
        """Discard unsent bytes, reset the connection (RST) and close: for a peer that does not read."""
        self.conn.abort()

    def shake_ready(self) -> bool:
        """Go on with the handshake as far as that needs no wait, whatever the deadlines. True if it is done and sent;
        if not, wait until the connection is writable if anything is `unsent`, else until it is readable."""
        core = self._core
        begun = not core.shaken
        try:
            while not core.shake():
                data = self.conn.receive_ready() if self._push() else None
                if data is None:
                    return False
                core.feed(data)
        except BrokenResourceError:
            self._answer()
            raise
        if begun and core.ssl_object.server_side and core.ssl_object.version() == "TLSv1.3":
            self._held = core.data_to_send()
        return self._push()

    def try_receive(self, max_bytes: int = RECEIVE_SIZE) -> bytes | None:
        """Receive bytes that are here or waiting in the socket, as `receive_some`; None if there are none."""
        self.conn.admit_read()
        return self._receive(max_bytes, not self.conn.drained)

    def receive_ready(self, max_bytes: int = RECEIVE_SIZE) -> bytes | None:
        """Do what `try_receive` does, after a wait: the deadline is not checked. None also if what has come is not a
        whole record."""
        return self._receive(max_bytes, True)

    def try_send(self, data: Buffer) -> int:
        """Encrypt of `data` what the kernel is likely to take, offer it, and return the number of bytes encrypted: 0 if
        earlier ones are still `unsent`."""
        self.conn.admit_write()
        return self.send_ready(data)

    def send_ready(self, data: Buffer) -> int:
        """Do what `try_send` does, after a wait: the deadline is not checked. b"" only sends what is `unsent`."""
        if not self._flush_before_data():
            return 0
        # it is sent by its bytes, as the kernel would
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        if size <= RECORD:
            if size:
                self._core.write(data if isinstance(data, bytes) else memoryview(data))
            self._push()
            return size
        done = 0
        with memoryview(data).cast("B") as view:
            while done < size and not self._unsent:
                done += self._send_records(cut_records([view[done:]], BATCH))
        return done

    def try_send_parts(self, parts: Sequence[Buffer]) -> int:
        """Do what `try_send` does with `parts`, one after another, but encrypt BATCH bytes at most."""
        self.conn.admit_write()
        return self._send_records(cut_records(parts, BATCH)) if self._flush_before_data() else 0

    def end_ready(self) -> bool:
        """Make the close_notify, if that was not done, and send what can be sent. True if nothing is left."""
        self._core.end()
        return self._push()

    def wait_readable(self) -> Awaitable[None]:
        """Return an awaitable that sleeps until `receive_ready` is worth trying. The read deadline applies."""
        return self.conn.wait_readable()

    def _receive(self, size: int, ask: bool) -> bytes | None:
        """Decrypt what is here, or else what the socket has, which is asked at least once if `ask`."""
        core, conn = self._core, self.conn
        try:
            data = core.read(size)
            while data is None and ask:
                received = conn.receive_ready()
                if received is None:
                    break
                core.feed(received)
                data = core.read(size)
                ask = not conn.drained
        except BrokenResourceError:
            self._answer()
            raise
        if core.has_output:
            self._answer()
        if data == b"" and core.truncated and not self._https_compatible:
            raise BrokenResourceError("the peer has ended the connection without TLS's close_notify")
        return data

    def _flush_before_data(self) -> bool:
        """Send what is unsent. True if data may be encrypted: nothing is left. ClosedResourceError after `send_eof`."""
        if self._core.ended:
            raise closed_error("this side of the connection was ended with send_eof()")
        return not self._unsent or self._push()

    def _send_records(self, plaintexts: list[Buffer]) -> int:
        """Encrypt a record of each, offer all, and return the number of bytes encrypted. Nothing may be unsent."""
        records = [self._held] if self._held and plaintexts else []
        sent = 0
        # the frame of an error must not hold a view of the caller's bytearray, which could not be resized then
        while plaintexts:
            sent += self._core.write(plaintexts.pop(0))
            records.append(self._core.data_to_send())
        if records:
            self._held = b""
            taken = self.conn.send_parts_ready(records)
            self.handed_over += taken
            self._unsent = b"".join(records)[taken:] if taken < sum([len(record) for record in records]) else b""
        return sent

    def _push(self) -> bool:
        """Hand ciphertext to the kernel, whatever the deadline. True if none is left."""
        if self._core.has_output:
            self._unsent += self._held + self._core.data_to_send()
            self._held = b""
        if self._unsent:
            taken = self.conn.send_ready(self._unsent)
            self.handed_over += taken
            self._unsent = self._unsent[taken:]
        return not self._unsent

    def _push_if_possible(self) -> None:
        """Hand ciphertext to the kernel. A connection that is broken is no error here: a receive raises it, after what
        has come."""
        try:
            self._push()
        except (BrokenResourceError, ClosedResourceError):
            self._unsent = b""

    def _push_later(self) -> None:
        """Let the poller hand what is `unsent` to the kernel, whatever the deadline, unless a task waits to do that."""
        while self._unsent and not self.conn.call_when_room(_Later(self)):
            self._push_if_possible()

    def _answer(self) -> None:
        """Send the answers of TLS itself. BrokenResourceError if they pile up because the peer does not read them."""
        self._push_if_possible()
        if len(self._unsent) > _MOST_UNSENT:
            raise BrokenResourceError("the peer makes TLS answer, and does not read the answers")


class _Later(ReadyCallback):
    """Sends what a TlsConn has `unsent` when there is room. Not the TlsConn itself: a compiled class has one base."""

    __slots__ = ("_tls",)

    def __init__(self, tls: TlsConn) -> None:
        self._tls: Final = tls

    def on_ready(self) -> None:
        self._tls._push_later()
