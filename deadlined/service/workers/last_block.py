"""The latest block of a worker process's event loop, in memory that the process shares with its supervisor.

Facts      A process whose event loop is blocked sends nothing. A thread of it knows where it is blocked
           (`process/stalls.py`).
Hazard     What a thread sent could end up in the middle of a frame that the event loop has begun. The supervisor kills
           a process that hangs, and nobody learns where; its log has each place only once.
Answer     The thread writes to memory, and the supervisor reads it when it needs it. What is half written is nothing.
Cost       Four pages per worker process, once its event loop was blocked.
"""

from __future__ import annotations

import json
import mmap
import struct
import time

# bytes; a stack has 3,000 characters at most
_SIZE = 16 * 1024

# when the block was found, in seconds of `time.monotonic()`, and the length of what is known of it; 0 is nothing
_HEAD = struct.Struct("=dI")


class LastBlock:
    """Made before the fork: `note` is for a thread of the worker process, `since` for the supervisor."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE)

    def note(self, file: str, function: str, stack: str) -> None:
        """Note a block that was found just now; without its stack if that does not fit, none if the rest does not."""
        for known in ([file, function, stack], [file, function, ""], []):
            # names of files may contain what is no text
            data = json.dumps(known, ensure_ascii=False).encode("utf-8", "surrogatepass")
            if len(data) <= _SIZE - _HEAD.size:
                break
        _HEAD.pack_into(self._memory, 0, 0.0, 0)
        self._memory[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._memory, 0, time.monotonic(), len(data))

    def since(self, when: float) -> dict[str, str]:
        """Return `file`, `function` and `stack` of the latest block if it was found after `when`, a time of
        `time.monotonic()`; {} if there is none."""
        found_at, length = _HEAD.unpack_from(self._memory)
        if not length or found_at < when:
            return {}
        try:
            known = json.loads(self._memory[_HEAD.size : _HEAD.size + length].decode("utf-8", "surrogatepass"))
        except ValueError:
            # it is being written
            return {}
        return dict(zip(("file", "function", "stack"), known, strict=False))
