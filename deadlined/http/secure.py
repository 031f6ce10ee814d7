"""A connection through TLS, under the same rules as one without.

Facts      What is encrypted must be sent before anything else, whether or not the kernel takes it now.
Hazard     If a part of a piece is encrypted and not sent, a send of the rest would encrypt it again. The deadline of
           the piece must count until the kernel has all of its ciphertext. If a large piece were joined at each offer,
           its peer would choose how often.
Answer     Bytes count as sent once their ciphertext has left. The transport knows how many of the next bytes are
           encrypted already (`ahead`), and goes on after them. It joins nothing: a record may have bytes of several.
"""

from __future__ import annotations

import logging
import ssl
from typing import ClassVar, Final

from ..errors import DeadlineExceeded
from ..net import BrokenResourceError, BusyResourceError, ClosedResourceError, Conn, TlsConn
from .reporting import report
from .timeouts import INF
from .tls_facts import TlsFacts, facts_of
from .transport import Buffer, Transport, address_of

# the first byte of a TLS handshake
TLS_HELLO: Final = b"\x16"


class Tls(Transport):
    """A connection through TLS. `received` are the first bytes, which were read already."""

    __slots__ = ("_facts", "_tls")

    # responses that are encrypted in a row cost less: the code that does it stays in the caches
    most_last: ClassVar[int] = 256 * 1024

    def __init__(self, conn: Conn, context: ssl.SSLContext, received: bytes) -> None:
        super().__init__(conn)
        self._tls: TlsConn = TlsConn(conn, context, server_side=True, https_compatible=True, received=received)
        # None until somebody asks
        self._facts: TlsFacts | None = None

    @property
    def tls(self) -> TlsFacts | None:
        if self._facts is None:
            self._facts = facts_of(self._tls.ssl_object)
        return self._facts

    @property
    def can_be_unattended(self) -> bool:
        return not self._tls.holds_bytes

    @property
    def drained(self) -> bool:
        return self._tls.drained

    @property
    def peer_ended(self) -> bool:
        """True if the peer has closed its side without a close_notify."""
        return self._tls.truncated

    @property
    def was_cut(self) -> bool:
        return self._tls.cut_in_record

    async def handshake(self, deadline: float) -> None:
        """Set up TLS by `deadline`. Raise BrokenResourceError if the peer has left, or if it does not speak TLS as the
        context wants it; then the cause is the SSLError, and the peer was told."""
        self.conn.set_deadline(deadline)
        tls = self._tls
        while not tls.shake_ready():
            try:
                await (self.conn.wait_writable() if tls.unsent else self.conn.wait_readable())
            except DeadlineExceeded:
                # the last bytes may have come in time
                if not tls.shake_ready():
                    raise
        self.conn.set_deadline(INF)

    @property
    def taken(self) -> int:
        return self._tls.handed_over - self.untaken

    def offer(self, data: Buffer) -> int:
        return self._left(self._tls.try_send(memoryview(data)[self.ahead :] if self.ahead else data))

    def offer_parts(self, parts: list[Buffer]) -> int:
        return self._left(self._tls.try_send_parts(_without(self.ahead, parts) if self.ahead else parts))

    def _left(self, encrypted: int) -> int:
        """Note that `encrypted` more bytes are encrypted. Return how many bytes have left."""
        self.ahead += encrypted
        if self._tls.unsent:
            return 0
        taken, self.ahead = self.ahead, 0
        self.sent += taken
        return taken

    async def end(self, deadline: float) -> None:
        await self._notify_close(deadline)
        self.conn.shutdown_write()

    async def aclose(self, deadline: float) -> None:
        try:
            await self._notify_close(deadline)
        except (DeadlineExceeded, BrokenResourceError, ClosedResourceError, BusyResourceError):
            # the peer has left, or did not take the close_notify in time
            self.ahead = 0
        self.conn.close()

    async def _notify_close(self, deadline: float) -> None:
        """Send what is encrypted, and a close_notify."""
        self.conn.set_write_deadline(deadline)
        while not self._tls.end_ready():
            await self.conn.wait_writable()

    def _try_receive(self, max_bytes: int) -> bytes | None:
        if self._tls.drained:
            return None
        try:
            return self._tls.try_receive(max_bytes)
        except BrokenResourceError as error:
            self._log(error)
            raise

    def _receive_now(self, max_bytes: int) -> bytes | None:
        try:
            return self._tls.receive_ready(max_bytes)
        except BrokenResourceError as error:
            self._log(error)
            raise

    def _log(self, error: BrokenResourceError) -> None:
        """Log for debugging that TLS has failed. A connection that was reset is no failure of TLS."""
        if isinstance(error.__cause__, ssl.SSLError):
            report(logging.DEBUG, "no TLS any more with %s: %s", address_of(self.conn.socket.getpeername), error)


def _without(size: int, parts: list[Buffer]) -> list[Buffer]:
    """Return `parts` without their first `size` bytes."""
    rest: list[Buffer] = []
    for part in parts:
        if size < len(part):
            rest.append(memoryview(part)[size:] if size else part)
        size = max(size - len(part), 0)
    return rest
