"""Where the frames of a websocket's peer begin and end, and the messages that are one frame.

Facts      Most messages come in one frame. It must be copied once, to unmask it. `websockets` copies it four times and
           runs a generator for each frame, which costs more than the system calls of an echo of 64 KiB.
Hazard     Two parsers that disagree about where a frame ends would read one stream in two ways.
Answer     This module reads only masked text and binary frames that are whole messages and not too long, without
           reserved bits but that of a compressed message, where compression was agreed on. All other frames go to
           `websockets`, which alone decides what is wrong with them: their bytes as they come, once the frame's length
           is known. Control frames are told apart, because they are no part of a message. All frames are counted.
Cost       The heads of frames that go to `websockets` are read twice.
"""

from __future__ import annotations

from typing import Any, Final

from websockets.frames import apply_mask  # type: ignore[import-not-found,attr-defined,unused-ignore]  # optional

# what `next` finds
NOTHING: Final = 0
TEXT: Final = 1
BINARY: Final = 2
OTHER: Final = 3
CONTROL: Final = 4

# longer than any frame
ENDLESS: Final = 1 << 72

# the first byte of a frame that is a whole message, without reserved bits
_WHOLE_TEXT: Final = 0x81
_WHOLE_BINARY: Final = 0x82

# the reserved bit that says that a message is compressed (RFC 7692, 6)
_COMPRESSED: Final = 0x40

# the bit of the opcodes of control frames, and the bytes that one may have (RFC 6455, 5.5)
_CONTROL_BIT: Final = 0x08
_MOST_CONTROL: Final = 125

# bytes: to copy a smaller payload costs less than a view of it
_SMALL: Final = 1024


class Splitter:
    """Splits the bytes of one peer. After `put`, call `next` until it returns NOTHING.

    `most`: the bytes that a message in one frame may have. `compression`: whether a message may be compressed.
    `content`: the bytes that `next` has found. `compressed`: they are the payload of a compressed message. `count`: the
    frames whose beginning was found since the last `put`.
    """

    __slots__ = (
        "_at",
        "_data",
        "_kind",
        "_left",
        "_mask",
        "_missing",
        "_most",
        "_payload",
        "_significant",
        "compressed",
        "content",
        "count",
    )

    def __init__(self, most: int, compression: bool) -> None:
        self._most: int = most
        # the bits of a frame's first byte that tell whether it is a whole message
        self._significant: int = 0xFF & ~_COMPRESSED if compression else 0xFF
        # received bytes, and the index of the first that `next` has not found. Between two puts: an incomplete head
        self._data: bytes = b""
        self._at: int = 0
        # bytes still to come of the latest frame that goes to `websockets`
        self._left: int = 0
        # a message that is incomplete: its masked bytes, the number of those that have not come, and its mask
        self._payload: bytearray | None = None
        self._missing: int = 0
        self._mask: bytes = b""
        # the kind of that message or of that frame
        self._kind: int = NOTHING
        self.content: bytes = b""
        self.compressed: bool = False
        self.count: int = 0

    @property
    def incomplete(self) -> bool:
        """True if some of a frame has come, and not all."""
        return self._payload is not None or self._left > 0 or len(self._data) > 0

    def put(self, data: bytes) -> None:
        """Append bytes of the peer. `next` must have returned NOTHING."""
        self._data = self._data + data if self._data else data
        self.count = 0

    def discard(self) -> None:
        """Forget all bytes."""
        self._payload = None
        self._left = 0
        self._data = self.content = b""
        self._at = 0

    def next(self, begun: bool) -> int:
        """Find what comes next, and return its kind:

        TEXT, BINARY   `content` is the payload of a message
        OTHER          `content` is bytes for `websockets`
        CONTROL        `content` is bytes for `websockets`, all of control frames whose length is valid
        NOTHING        more must be put

        `begun`: a message in several frames is incomplete, so that no frame is a whole message.
        """
        if self._payload is not None:
            return self._continue(self._payload)
        data, begin = self._data, self._at
        size = len(data)
        end = begin + self._left
        kind = self._kind
        while end < size:
            first = data[end]
            is_whole = first & self._significant in (_WHOLE_TEXT, _WHOLE_BINARY)
            if is_whole and end > begin:
                # hand over the frames before it first: they may begin or end a message in several frames, or be invalid
                break
            start, length = measured(data, end)
            if not start:
                break
            if is_whole and not begun and length <= self._most and data[end + 1] & 0x80:
                return self._begin(first, start, length)
            found = CONTROL if first & _CONTROL_BIT and length <= _MOST_CONTROL else OTHER
            if found != kind and end > begin:
                break
            kind = found
            self.count += 1
            end = start + length
        return self._other(kind, begin, end)

    def _begin(self, first: int, start: int, length: int) -> int:
        """Take the message whose payload begins at `start`."""
        data = self._data
        size = len(data)
        if start > size:
            return self._nothing(self._at)
        self.count += 1
        kind = TEXT if first & self._significant == _WHOLE_TEXT else BINARY
        self.compressed = bool(first & _COMPRESSED)
        mask = data[start - 4 : start]
        end = start + length
        if end > size:
            self._payload = bytearray(memoryview(data)[start:])
            self._missing, self._mask, self._kind = end - size, mask, kind
            return self._nothing(size)
        masked: Any = data[start:end] if length < _SMALL else memoryview(data)[start:end]
        self.content = apply_mask(masked, mask)
        self._at = end
        return kind

    def _continue(self, payload: bytearray) -> int:
        """Add received bytes to the incomplete message."""
        data, missing = self._data, self._missing
        if len(data) < missing:
            payload += data
            self._missing = missing - len(data)
            return self._nothing(len(data))
        payload += memoryview(data)[:missing]
        self._payload = None
        self.content = apply_mask(payload, self._mask)
        self._at = missing
        return self._kind

    def _other(self, kind: int, begin: int, end: int) -> int:
        """Find the bytes for `websockets` from `begin` to `end`, as far as they have come."""
        data = self._data
        size = len(data)
        at = min(end, size)
        self._left = end - at
        if at == begin:
            return self._nothing(at)
        self.content = data if at - begin == size else data[begin:at]
        self._at = at
        self._kind = kind
        return kind

    def _nothing(self, at: int) -> int:
        """Keep what begins at `at` until more is put, and nothing else."""
        self._data = self._data[at:]
        self._at = 0
        self.content = b""
        return NOTHING


def measured(data: bytes, at: int) -> tuple[int, int]:
    """Return where the payload of the frame at `at` begins, and its length; (0, 0) if that is not known yet. A frame
    whose first two bytes are wrong is ENDLESS: `websockets` will reject it, so its length does not matter."""
    left = len(data) - at
    if left < 2:
        return 0, 0
    opcode, second = data[at] & 0x0F, data[at + 1]
    if 3 <= opcode <= 7 or opcode > 10 or not second & 0x80:
        return at + 2, ENDLESS
    length = second & 0x7F
    if length < 126:
        return at + 6, length
    if length == 126:
        return (at + 8, data[at + 2] << 8 | data[at + 3]) if left >= 4 else (0, 0)
    return (at + 14, int.from_bytes(data[at + 2 : at + 10], "big")) if left >= 10 else (0, 0)


def head(is_text: bool, compressed: bool, length: int) -> bytes:
    """Return the head of a frame that is a whole message of `length` bytes, unmasked."""
    first = (_WHOLE_TEXT if is_text else _WHOLE_BINARY) | (_COMPRESSED if compressed else 0)
    if length < 126:
        return (first << 8 | length).to_bytes(2, "big")
    if length < 1 << 16:
        return (first << 24 | 126 << 16 | length).to_bytes(4, "big")
    return (first << 72 | 127 << 64 | length).to_bytes(10, "big")
