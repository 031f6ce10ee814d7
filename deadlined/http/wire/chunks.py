"""A body in chunks: written, and decoded strictly (RFC 9112, 7.1).

Hazard     Chunk extensions and trailers are read by few and forwarded by many. What is lenient, unlimited or read
           differently there carries a second request past a proxy, or costs memory and time.
Answer     The grammar's table reads every byte that is not data. Nothing of it is stored; it is counted, and the sums
           for one request are bounded like its head. Small chunks that have come together are joined into one piece,
           because a reader pays for each piece.
Cost       What is joined is copied.
"""

from __future__ import annotations

from typing import Final

from ..errors import BadRequest
from ..state import Reason
from ..timeouts import Limits
from .digits import LARGEST
from .grammar import DATA, DATA_CR, END, EXTENSION, FIELD_NAME, LINE, NEXT, REFUSED, SIZE, SIZE_START, describe

# hexadecimal digits of a chunk's size, leading zeros included: as many as 2**63 - 1 needs
_SIZE_DIGITS: Final = 16

_LETTER: Final = 0x41

# a chunk of fewer bytes is joined with those that follow it
_SMALL: Final = 4096
# bytes after which no further chunk is joined
_JOINED: Final = 64 * 1024
# chunks in one piece that take long to read
_MANY: Final = 256

# ends a body
LAST_CHUNK: Final = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of a body. ValueError if it is empty: that would end the body, as LAST_CHUNK does."""
    if not data:
        raise ValueError("an empty chunk would end the body")
    return b"%x\r\n%b\r\n" % (len(data), data)


class ChunkDecoder:
    """One body in chunks. `feed`, then `next_piece` until it gives b""; then `unread()` is what follows the body.
    `many`: a piece of what was fed last had _MANY chunks or more, so that other tasks should run before more is fed.

    Extensions are checked and ignored, trailer fields are checked and dropped. `limits.max_head` bounds the bytes of
    all extensions of the body, and again those of its trailers; `max_headers` bounds the number of trailer fields;
    `max_body` bounds the data.
    """

    __slots__ = (
        "_buffer",
        "_digits",
        "_extensions",
        "_fields",
        "_left",
        "_limits",
        "_received",
        "_refusal",
        "_size",
        "_start",
        "_state",
        "_trailers",
        "many",
    )  # fmt: skip

    def __init__(self, data: bytes, limits: Limits) -> None:
        self._limits: Limits = limits
        # what was fed and not read begins at `_start`
        self._buffer: bytes = data
        self._start: int = 0
        self._state: int = SIZE_START
        # the size of the next chunk as far as it was read, and its number of digits
        self._size: int = 0
        self._digits: int = 0
        # bytes of the current chunk that were not given out
        self._left: int = 0
        # bytes of all data, extensions and trailers, and the number of trailer fields
        self._received: int = 0
        self._extensions: int = 0
        self._trailers: int = 0
        self._fields: int = 0
        # what is wrong behind the latest piece: status, detail and reason. Not the error itself: its traceback refers
        # to this object
        self._refusal: tuple[int, str, Reason] | None = None
        self.many: bool = False

    @property
    def held(self) -> int:
        """Bytes that were fed and not read yet."""
        return len(self._buffer) - self._start

    @property
    def holds_last(self) -> bool:
        """True if the last chunk was read, or what was fed and not read ends like one without trailers. Data may end so
        by chance, too."""
        return self._state == END or self._buffer.endswith(LAST_CHUNK, self._start)

    def feed(self, data: bytes) -> None:
        """Append what was received."""
        self._buffer = self._buffer[self._start :] + data
        self._start = 0
        self.many = False

    def next_piece(self) -> bytes | None:
        """Return the next piece of data, None if more must be fed first, b"" once the body is complete.

        Raise BadRequest if the chunks are malformed or exceed a limit; the decoder must not be used after that.
        """
        if self._refusal is not None:
            raise BadRequest(*self._refusal)
        if not self._left:
            self._read_framing()
        if self._state == END:
            return b""
        piece = self._take_data() if self._left else None
        return piece if piece is None or self._left or len(piece) >= _SMALL else self._join(piece)

    def unread(self) -> bytes:
        """Return what follows the complete body."""
        return self._buffer[self._start :]

    def _join(self, piece: bytes) -> bytes:
        """Return a complete chunk with those that have come behind it."""
        pieces = [piece]
        size = len(piece)
        while size < _JOINED and self._start < len(self._buffer):
            try:
                self._read_framing()
            except BadRequest as bad:
                self._refusal = bad.status, bad.detail, bad.reason
                break
            following = self._take_data() if self._left else None
            if following is None:
                break
            pieces.append(following)
            size += len(following)
            if self._left:
                break
        self.many = self.many or len(pieces) >= _MANY
        return b"".join(pieces)

    def _take_data(self) -> bytes | None:
        start = self._start
        piece = self._buffer[start : start + self._left]
        if not piece:
            return None
        self._left -= len(piece)
        self._start = start + len(piece)
        if self._start == len(self._buffer):
            # an empty buffer holds no memory
            self._buffer = b""
            self._start = 0
        if not self._left:
            self._state = DATA_CR
        return piece

    def _read_framing(self) -> None:
        """Read up to the next chunk's data, the end of the body, or the end of what was fed."""
        buffer = self._buffer
        size = len(buffer)
        state = self._state
        place = self._start
        while place < size and state != END:
            byte = buffer[place]
            place += 1
            following = NEXT[256 * state + byte]
            if following == REFUSED:
                raise BadRequest(400, describe(state, byte))
            if following == DATA:
                following = self._begin_data()
            elif following == SIZE:
                self._count_digit(byte)
            elif following >= EXTENSION:
                self._count_extension()
            elif LINE <= following <= END:
                self._count_trailer(state, following)
            state = following
            if self._left:
                break
        self._state = state
        self._start = place

    def _begin_data(self) -> int:
        """Return the state after the line of a chunk: the last one, of size 0, is followed by the trailers."""
        size = self._size
        self._size = self._digits = 0
        self._received += size
        if self._received > self._limits.max_body:
            raise BadRequest(413, f"the body is longer than the {self._limits.max_body:g} bytes that are allowed")
        self._left = size
        return DATA if size else LINE

    def _count_digit(self, byte: int) -> None:
        # the low four bits of `A` and of `a` are 1
        self._size = 16 * self._size + (byte & 0x0F) + (9 if byte >= _LETTER else 0)
        self._digits += 1
        if self._digits > _SIZE_DIGITS or self._size > LARGEST:
            raise BadRequest(400, "the size of a chunk is too large for any body")

    def _count_extension(self) -> None:
        self._extensions += 1
        if self._extensions > self._limits.max_head:
            raise BadRequest(400, f"the chunk extensions of the body are longer than {self._limits.max_head:g} bytes")

    def _count_trailer(self, state: int, following: int) -> None:
        self._trailers += 1
        self._fields += state == LINE and following == FIELD_NAME
        if self._trailers > self._limits.max_head or self._fields > self._limits.max_headers:
            raise BadRequest(431, "the trailers are longer than a head may be", Reason.HEADER_TOO_LARGE)
