"""A connection through TLS, under the same rules as one in the clear.

Facts      What is encrypted must be sent before anything else, whether or not the kernel takes it now.
Hazard     A piece of which a part is encrypted and not sent would be encrypted again by the one who sends the rest.
           Its deadline must count until the kernel has all of its ciphertext.
Answer     A piece counts as taken once its ciphertext has left. The transport remembers which piece it has begun and
           how far; the send that continues with the same object goes on from there.
Cost       A reference to a piece, only while the peer does not read.
"""

from __future__ import annotations

import logging
import ssl
from typing import Final

from ..errors import DeadlineExceeded
from ..net import BrokenResourceError, BusyResourceError, ClosedResourceError, Conn, TlsConn
from .reporting import report
from .timeouts import INF
from .transport import Deadline, Transport, address_of

# the first byte of a TLS handshake
TLS_HELLO: Final = b"\x16"


class Tls(Transport):
    """A connection through TLS. `received` are the first bytes, which were read already."""

    __slots__ = ("_begun", "_begun_to", "_tls")

    def __init__(self, conn: Conn, context: ssl.SSLContext, received: bytes) -> None:
        super().__init__(conn)
        self._tls: TlsConn = TlsConn(conn, context, server_side=True, https_compatible=True, received=received)
        # a piece of which bytes are encrypted and not sent, and how many of its bytes are encrypted
        self._begun: bytes | None = None
        self._begun_to: int = 0

    @property
    def can_be_unattended(self) -> bool:
        return not self._tls.holds_bytes

    @property
    def peer_ended(self) -> bool:
        """True if the peer has closed its side without a close_notify."""
        return self._tls.truncated

    async def handshake(self, deadline: float) -> None:
        """Set up TLS by `deadline`. Raise BrokenResourceError if the peer has left, or if it does not speak TLS as the
        context wants it; then the cause is the SSLError, and the peer was told."""
        self.conn.set_deadline(deadline)
        tls = self._tls
        while not tls.shake_ready():
            try:
                await (tls.wait_writable() if tls.unsent else tls.wait_readable())
            except DeadlineExceeded:
                # the last bytes may have come in time
                if not tls.shake_ready():
                    raise
        self.conn.set_deadline(INF)

    def try_send(self, data: bytes) -> int:
        self._budget -= 1
        if self._budget <= 0 or self._tls.unsent:
            return 0
        return self._encrypted(data, self._tls.try_send(data))

    async def send(self, data: bytes, taken: int, deadline: Deadline) -> None:
        conn, tls, length = self.conn, self._tls, len(data)
        if data is self._begun:
            taken = self._begun_to
        self._begun = None
        if self._budget <= 0:
            await self._let_others_run()
        with memoryview(data) as view:
            taken += self._count(tls.try_send(view[taken:]))
            if taken < length or tls.unsent:
                conn.set_write_deadline(deadline(length))
            while taken < length or tls.unsent:
                before = tls.handed_over
                taken += await self._wait_and_send(view[taken:])
                if tls.handed_over > before:
                    conn.set_write_deadline(deadline(length))
        conn.set_write_deadline(INF)

    def send_last(self, data: bytes) -> bool:
        tls = self._tls
        try:
            self.conn.set_write_deadline(INF)
            if tls.unsent:
                return False
            if self._encrypted(data, tls.try_send(data)) < len(data) or not tls.end_ready():
                return False
            self.conn.shutdown_write()
        except (BrokenResourceError, ClosedResourceError, BusyResourceError):
            return False
        return True

    async def end(self, deadline: float) -> None:
        await self._notify_close(deadline)
        self.conn.shutdown_write()

    async def aclose(self, deadline: float) -> None:
        try:
            await self._notify_close(deadline)
        except (DeadlineExceeded, BrokenResourceError, ClosedResourceError, BusyResourceError):
            # the peer has left, or did not take the close_notify in time
            self._begun = None
        self.conn.close()

    async def _notify_close(self, deadline: float) -> None:
        """Send what is encrypted, and a close_notify."""
        self.conn.set_write_deadline(deadline)
        while not self._tls.end_ready():
            await self._tls.wait_writable()

    def _try_receive(self) -> bytes | None:
        if self._tls.drained:
            return None
        try:
            return self._tls.try_receive()
        except BrokenResourceError as error:
            self._log(error)
            raise

    def _receive_now(self) -> bytes | None:
        try:
            return self._tls.receive_ready()
        except BrokenResourceError as error:
            self._log(error)
            raise

    def _log(self, error: BrokenResourceError) -> None:
        """Log for debugging that TLS has failed. A connection that was reset is no failure of TLS."""
        if isinstance(error.__cause__, ssl.SSLError):
            report(logging.DEBUG, "no TLS any more with %s: %s", address_of(self.conn.socket.getpeername), error)

    async def _wait_and_send(self, data: memoryview) -> int:
        tls = self._tls
        try:
            await tls.wait_writable()
        except DeadlineExceeded:
            before = tls.handed_over
            more = self._count(tls.send_ready(data))
            if tls.handed_over == before:
                raise
            return more
        return self._count(tls.send_ready(data))

    def _encrypted(self, data: bytes, number: int) -> int:
        """Count bytes of `data` that were encrypted. Return how many of them have left: all, or for now none."""
        self.sent += number
        if not self._tls.unsent:
            return number
        self._begun, self._begun_to = data, number
        return 0

    def _count(self, sent: int) -> int:
        self.sent += sent
        return sent
