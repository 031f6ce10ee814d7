"""Frames: how messages follow each other on a stream between two processes of a service.

A frame is one byte that says what it is, four bytes of length, and a payload.
"""

from __future__ import annotations

import struct
from typing import Final

# a worker process serves
READY = b"r"
# a worker process drains: it accepts no connection any more
LEAVING = b"l"
# to a worker process: cut the drain short
END = b"e"
# to a worker process: the service ends, and so does the time that it has because others replace it
STOP = b"s"
# to a worker process: which slots it accepts from; the descriptors of new ones come with it
ACCEPT = b"a"
# to a worker process: what has changed in the configuration; to the admin process: the configuration to show
CONFIGURE = b"c"
# a question about what a process does, and its answer
ASK = b"q"
TELL = b"t"

# descriptors that can go with one message; Linux fails with EINVAL for more (SCM_MAX_FD)
MOST_DESCRIPTORS: Final = 253

_HEAD = struct.Struct("!cI")

# bytes; a thousand connections of a hundred processes are less
_LONGEST = 64 * 1024 * 1024


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return _HEAD.pack(kind, len(payload)) + payload


class Frames:
    """Takes the bytes of a stream, and gives its frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return kind and payload of each frame that is complete now. ValueError if the stream is not one of frames."""
        buffer = self._buffer
        buffer += data
        found = []
        while len(buffer) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(buffer)
            if length > _LONGEST:
                raise ValueError(f"a frame of {length} bytes")
            end = _HEAD.size + length
            if len(buffer) < end:
                break
            found.append((kind, bytes(buffer[_HEAD.size : end])))
            del buffer[:end]
        return found
