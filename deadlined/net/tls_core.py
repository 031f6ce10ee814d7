"""TLS without a socket: ciphertext in, ciphertext out, and never a wait.

Facts      OpenSSL reads ciphertext from one memory buffer and writes it into another. Such a buffer keeps the size that
           it once had. OpenSSL's end of the stream is final: after an end without close_notify it also refuses to
           encrypt; and after its own close_notify, data that it finds where it looks for the peer's breaks it.
Hazard     A connection that once moved a large body would hold several times the record for as long as it is idle. A
           peer that ends its side without close_notify, as many do, could not be answered. Decrypted bytes that nobody
           notices would wait for ever. A peer that sends TLS's own messages without end, such as updates of its keys,
           would keep the task that reads busy, and with it the whole event loop.
Answer     At most PIECE bytes go into OpenSSL's buffers at a time, and one record comes out of them; what else has come
           waits as bytes, and is free as soon as it is read. The end of the ciphertext is kept here and not told to
           OpenSSL. What is decrypted before a close_notify is sent is kept. `holds_bytes` says whether anything lies
           here. Ciphertext that makes no data is bounded.
Cost       A call and an exception for each PIECE, a call for each record. After a large body the buffer of what has
           come keeps 10 KB, the other one 17. Records of half the size would keep 11 there, and take a fifth longer.

OpenSSL releases its own two record buffers while they are empty: Python's `ssl` asks for it (SSL_MODE_RELEASE_BUFFERS).
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final

from .errors import BrokenResourceError
from .sockets import Buffer

# bytes of ciphertext that are given to OpenSSL at a time
PIECE: Final = 8192

# the most plaintext of one record
RECORD: Final = 16384

# plaintext of the first record of a connection that is larger than this. OpenSSL's buffer grows to four thirds of what
# it must hold: from this one to 16.6 kB, in which a whole record has room, and from a whole one to 21.9
_FIRST: Final = 12_400

# bytes of ciphertext in a row that may make no data: the beginning of a record, session tickets, updates of keys, a
# certificate that is asked for later. BoringSSL and rustls bound the messages (32), as Go does (16): OpenSSL does not,
# and does not show them
_MOST_DATALESS: Final = 64 * 1024

# the same in the handshake. OpenSSL accepts a ClientHello of 128 KiB and certificates of 100
_MOST_HANDSHAKE: Final = 256 * 1024

# what OpenSSL's name of an error means, where the name does not say it
_MEANINGS: Final = {
    "BAD_KEY_SHARE": "its key share is invalid",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "a record was changed on its way",
    "HTTP_REQUEST": "the peer speaks plain HTTP",
    "NO_APPLICATION_PROTOCOL": "no protocol of its ALPN list is offered here",
    "NO_SHARED_CIPHER": "no cipher suite is accepted by both sides",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "no signature algorithm is accepted by both sides",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer has sent no certificate, and one is required",
    # what newer ones say of the same changed record, and of others
    "RECORD_LAYER_FAILURE": "a record was changed on its way, or is malformed",
    "UNSUPPORTED_PROTOCOL": "no version of TLS is accepted by both sides",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS",
}


class TlsCore:
    """One side of a TLS connection between two buffers. `feed` it what arrives, and send what `data_to_send` returns.

    Every method may make output: also `read`, which answers the peer's own messages, and one that raises, which leaves
    an alert. BrokenResourceError says that TLS is over; its cause is the SSLError.
    """

    __slots__ = (
        "_dataless",
        "_failure",
        "_fed",
        "_filled",
        "_has_room",
        "_incoming",
        "_outgoing",
        "_partial",
        "_plain",
        "_unfed",
        "closed",
        "ended",
        "eof",
        "shaken",
        "ssl_object",
    )

    def __init__(self, context: ssl.SSLContext, server_side: bool, server_hostname: str | None) -> None:
        # OpenSSL 3 refuses by itself when a client wants to renegotiate; earlier versions, and servers that want to,
        # need this
        context.options |= ssl.OP_NO_RENEGOTIATION
        if server_hostname is not None:
            # the dot that ends a full name in DNS is in no certificate, and not in TLS's name either (RFC 6066, 3)
            server_hostname = server_hostname.removesuffix(".")
        self._incoming: ssl.MemoryBIO = ssl.MemoryBIO()
        self._outgoing: ssl.MemoryBIO = ssl.MemoryBIO()
        self.ssl_object: ssl.SSLObject = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        # received ciphertext, and how many of its bytes OpenSSL was given
        self._unfed: bytes = b""
        self._fed: int = 0
        # bytes of ciphertext that OpenSSL was given since it has made data, or since the handshake
        self._dataless: int = 0
        # plaintext that had to be decrypted before our close_notify was made, and is to be read
        self._plain: bytes = b""
        # the last read got as much as it asked for: OpenSSL may have more of that record
        self._filled: bool = False
        # the last ciphertext that OpenSSL was given has made no data: it begins a record, or, rarely, is a message of
        # TLS itself
        self._partial: bool = False
        # the buffer of what goes out has room for a whole record
        self._has_room: bool = False
        # what has broken TLS, in words
        self._failure: str = ""
        self.shaken: bool = False
        # the peer's close_notify has come; ours was made; the peer's ciphertext has ended
        self.closed: bool = False
        self.ended: bool = False
        self.eof: bool = False

    @property
    def holds_bytes(self) -> bool:
        """True if `read` may return something without more ciphertext: bytes, or the end of the stream. The beginning
        of a record that OpenSSL has read does not count."""
        return bool(
            self._incoming.pending
            or self._plain
            or self._fed < len(self._unfed)
            or self.closed
            or self.eof
            or self._failure
            or (self._filled and self.ssl_object.pending())
        )

    @property
    def truncated(self) -> bool:
        """True if the ciphertext has ended without the peer's close_notify, so that the end may be an attacker's."""
        return self.eof and not self.closed

    @property
    def cut_in_record(self) -> bool:
        """True if all was read, and the ciphertext has ended in the middle of a record, where no peer ends a stream.
        Also True if it has ended without a close_notify after a message of TLS itself, which looks the same here."""
        return self.truncated and self._partial

    @property
    def has_output(self) -> bool:
        """True if `data_to_send` returns something."""
        return self._outgoing.pending > 0

    def data_to_send(self) -> bytes:
        """Return the ciphertext that is to be sent, and forget it."""
        return self._outgoing.read()

    def feed(self, data: bytes) -> None:
        """Add received ciphertext; b"" is its end. Call it only when `read` or `shake` needs more: only they
        bound the sum."""
        if not data:
            self.eof = True
        elif self._fed < len(self._unfed):
            self._unfed, self._fed = self._unfed[self._fed :] + data, 0
        elif len(data) <= PIECE:
            self._give(data)
        else:
            self._unfed, self._fed = data, 0

    def shake(self) -> bool:
        """Go on with the handshake. True if it is done, False if it needs more ciphertext. BrokenResourceError if it
        has failed or is far too long, or if the ciphertext has ended."""
        self._require_working()
        while not self.shaken:
            try:
                self.ssl_object.do_handshake()
                self.shaken = True
                self._dataless = 0
            except ssl.SSLWantReadError:
                self._bound_dataless(_MOST_HANDSHAKE)
                if not self._feed_piece():
                    break
            except ssl.SSLError as error:
                raise self._failed(error)  # noqa: B904, it has its cause
        if self.eof and not self.shaken:
            raise BrokenResourceError("the peer has ended the connection in the middle of the TLS handshake")
        return self.shaken

    def read(self, size: int) -> bytes | None:
        """Return the next decrypted bytes, b"" at the end of the stream (see `truncated`), None if more ciphertext is
        needed. BrokenResourceError, too, if far too much ciphertext has come without data."""
        if self._plain:
            plain = self._plain[:size]
            self._plain = self._plain[size:]
            return plain
        self._require_working()
        while not self.closed and (self._incoming.pending or self._filled or self._feed_piece()):
            data = self._read_record(min(size, RECORD))
            if data is not None:
                return data
        return b"" if self.closed or self.eof else None

    def write(self, data: Buffer) -> int:
        """Encrypt `data`, from 1 to RECORD bytes, and return their number."""
        self._require_shaken()
        if not self._has_room and len(data) > _FIRST:
            self._has_room = True
            view = memoryview(data).cast("B")
            return self.write(view[:_FIRST]) + self.write(view[_FIRST:])
        try:
            return self.ssl_object.write(data)
        except ssl.SSLError as error:
            raise self._failed(error)  # noqa: B904, it has its cause

    def end(self) -> None:
        """Make our close_notify, after which nothing can be written. Reading goes on. Idempotent; does nothing before
        the end of the handshake, or after a failure."""
        if self.ended:
            return
        self.ended = True
        if not self.shaken or self._failure:
            return
        try:
            # OpenSSL looks for the peer's close_notify as well, and would fail on data
            while not self.closed and (self._incoming.pending or self._filled):
                self._plain += self._read_record(RECORD) or b""
            self.ssl_object.unwrap()
            self.closed = True
        except ssl.SSLWantReadError:
            # the peer's is still to come
            return
        except (ssl.SSLError, BrokenResourceError) as error:
            # for the next read
            self._failure = self._failure or describe_error(error)

    def _feed_piece(self) -> bool:
        """Give OpenSSL the next piece of ciphertext. False if there is none."""
        start = self._fed
        if start >= len(self._unfed):
            return False
        self._fed = start + PIECE
        self._give(self._unfed[start : self._fed])
        if self._fed >= len(self._unfed):
            self._unfed, self._fed = b"", 0
        return True

    def _give(self, piece: bytes) -> None:
        self._incoming.write(piece)
        self._dataless += len(piece)

    def _read_record(self, size: int) -> bytes | None:
        """Decrypt from what OpenSSL has. None if that is not a whole record."""
        self._require_shaken()
        self._filled = False
        given = self._incoming.pending > 0
        try:
            data = self.ssl_object.read(size)
            self._filled = len(data) == size
            self._partial = False
            self._dataless = 0
        except ssl.SSLWantReadError:
            self._bound_dataless(_MOST_DATALESS)
            self._partial = given
            return None
        except ssl.SSLZeroReturnError:
            data = b""
        except ssl.SSLError as error:
            raise self._failed(error)  # noqa: B904, it has its cause
        if not data:
            self.closed = True
            self._unfed, self._fed = b"", 0
        return data

    def _bound_dataless(self, most: int) -> None:
        if self._dataless > most:
            raise self._failed(ssl.SSLError("the peer sends too many messages of TLS itself"))

    def _require_shaken(self) -> None:
        self._require_working()
        if not self.shaken:
            raise RuntimeError("the TLS handshake is not done: await do_handshake() first")

    def _require_working(self) -> None:
        if self._failure:
            raise BrokenResourceError(f"TLS has failed: {self._failure}")

    def _failed(self, error: ssl.SSLError) -> BrokenResourceError:
        """Record that TLS is over, and make the error."""
        self._failure = describe_error(error)
        broken = BrokenResourceError(f"TLS has failed: {self._failure}")
        # set here, because `raise ... from` does not do it in compiled code
        broken.__cause__ = error
        return broken


def cut_records(parts: Sequence[Buffer], most: int) -> list[Buffer]:
    """Cut the first bytes of `parts`, `most` in all, into the plaintexts of records. Only a record that has bytes of
    several parts is copied."""
    plaintexts: list[Buffer] = []
    begun: list[Buffer] = []
    room = RECORD
    for part in parts:
        # by its bytes, as the kernel would send it
        view = memoryview(part).cast("B")
        start, end = 0, min(len(view), most)
        most -= end
        while start < end:
            piece = view[start : min(start + room, end)]
            begun.append(piece)
            start += len(piece)
            room -= len(piece)
            if not room:
                plaintexts.append(_joined(begun))
                begun, room = [], RECORD
    if begun:
        plaintexts.append(_joined(begun))
    return plaintexts


def _joined(parts: list[Buffer]) -> Buffer:
    return parts[0] if len(parts) == 1 else b"".join(parts)


def describe_error(error: Exception) -> str:
    """Say what an error of `ssl` means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {error.verify_message}"
    # not every SSLError has it
    name: str | None = getattr(error, "reason", None)
    if not name:
        return str(error.args[0] if len(error.args) == 1 else error)
    _, is_alert, alert = name.partition("_ALERT_")
    if is_alert:
        return f"the peer refuses it: {alert.replace('_', ' ').lower()}"
    return _MEANINGS.get(name) or name.replace("_", " ").lower()
