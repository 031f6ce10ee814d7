"""A file as the body of a response.

Facts      Opening a file may wait for a disk or another machine, and so may reading and closing it. What Linux has of a
           file in memory it gives without a wait: `preadv` with RWF_NOWAIT fails instead of waiting. Other systems, and
           some file systems, know no such read.
Hazard     A wait in the event loop holds all other requests. A file can be truncated while it is sent, grow, or be
           replaced between the head of its response and its body. A descriptor that is closed while a thread reads it
           may be another file's by then.
Answer     A thread opens the file and reads its first piece, and one reads its last piece and closes it; those between
           are read in the event loop, or in a thread if that would wait. A file whose size is not what the head has
           announced is refused; of one that grows later the size at its opening is sent. A task that is cancelled
           leaves its thread alone, which closes the file then.
Cost       One call in a thread for a file of one piece, as nginx with `aio threads`, and fewer than frameworks make.
           The pieces are copied: `sendfile` would spare that, and wait for the disk.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from functools import partial
from typing import Final

from ..runtime import current_host
from .errors import ResponseError
from .exchange import Exchange
from .state import DEAD

# bytes that are read at once: as many as may be pending (`output.LIMIT`), so a stalled reader holds two pieces
PIECE: Final = 64 * 1024

# 0 where there is no read that does not wait
_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)

# opening a FIFO that nobody writes would wait for ever
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


class FileReader:
    """A regular file, read from its beginning, by one task. `size`: bytes when it was opened."""

    __slots__ = ("_busy", "_closed", "_fd", "_lock", "_nowait", "_offset", "_path", "size")

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._offset = 0
        self._nowait = _NOWAIT
        self.size: int = 0
        # for what a thread and the event loop may do at once: use the descriptor, and close it
        self._lock = threading.Lock()
        self._busy = False
        self._closed = False

    async def open(self, most: int) -> bytes:
        """Open the file, and return its first bytes, at most `most`. Raise ResponseError if it is no regular file that
        can be opened."""
        return await self._in_thread(most, True)

    async def read(self, most: int) -> bytes:
        """Return the next bytes, at most `most`; b"" at the end. Raise ResponseError if they cannot be read."""
        return await self._in_thread(most, False)

    def try_read(self, most: int) -> bytes | None:
        """Return the next bytes, at most `most`, if that takes no wait and they are not the last ones, else None."""
        if not self._nowait or self._offset + most >= self.size:
            # the thread that reads the end closes the file
            return None
        buffer = bytearray(most)
        try:
            taken = os.preadv(self._fd, [buffer], self._offset, self._nowait)
        except OSError as error:
            # a file system that knows no such read would refuse the next one, too; `read` meets any other error
            if error.errno != errno.EAGAIN:
                self._nowait = 0
            return None
        if not taken:
            # the end, or a fault of Linux 5.9 and 5.10 (preadv2(2), BUGS)
            return None
        self._offset += taken
        return bytes(memoryview(buffer)[:taken])

    def close(self) -> None:
        """Have the file closed, by the thread that uses it or another one. Idempotent."""
        with self._lock:
            self._closed = True
            if self._busy or self._fd < 0:
                return
        try:
            threading.Thread(target=self._release, daemon=True).start()
        except RuntimeError:
            # there are as many threads as there may be
            self._release()

    async def _in_thread(self, most: int, opens: bool) -> bytes:
        try:
            return await current_host().in_thread(partial(self.use, most, opens))
        except (OSError, ValueError) as error:
            # a path with a null character, or that cannot be encoded, is a ValueError
            raise ResponseError(f"the file cannot be sent: {error}") from error

    def use(self, most: int, opens: bool) -> bytes:
        """Open the file, if `opens`, and read; close it at its end. In a thread, which may begin after `close`."""
        with self._lock:
            if self._closed:
                return b""
            self._busy = True
        try:
            if opens:
                self._open()
                # it may have grown since its size was asked for
                most = min(most, self.size)
            data = os.pread(self._fd, most, self._offset)
            self._offset += len(data)
            return data
        finally:
            with self._lock:
                self._busy = False
                if self._closed or self._offset >= self.size:
                    self._release()

    def _open(self) -> None:
        try:
            self._fd = os.open(self._path, _FLAGS)
        except BlockingIOError:
            # another program is told to give up its lease of the file first, which O_NONBLOCK does not wait for
            self._fd = os.open(self._path, _FLAGS & ~os.O_NONBLOCK)
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            is_folder = stat.S_ISDIR(found.st_mode)
            number = errno.EISDIR if is_folder else errno.EINVAL
            raise OSError(number, os.strerror(number) if is_folder else "Not a regular file", self._path)
        self.size = found.st_size

    def _release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


async def send_file(exchange: Exchange, path: str) -> None:
    """Send the file at `path` as the body of the response, which was started, and complete it. Return early if the peer
    is gone. A cancellation leaves the response incomplete. A response that has no body does not open the file.

    Raise ResponseError if the file cannot be read, or is longer or shorter than the head has announced: most often
    before anything was sent. Raise what `Exchange.send` raises.
    """
    writer = exchange.writer
    if exchange.link == DEAD or not writer.status or writer.complete or writer.has_no_body:
        # nobody gets it, an error, or all that is to be sent
        exchange.try_send(b"", False)
        return
    reader = FileReader(path)
    try:
        await _send(exchange, reader, writer.left)
    finally:
        reader.close()


async def _send(exchange: Exchange, reader: FileReader, announced: int | None) -> None:
    # a file that is not there can be answered with 500 as long as the head has not left
    exchange.opens_body = True
    try:
        data = await reader.open(PIECE if announced is None else min(announced, PIECE))
    finally:
        exchange.opens_body = False
    left = reader.size
    if announced is not None and left != announced:
        raise ResponseError(f"the file has {left} bytes, and the Content-Length of its response leaves {announced}")
    while True:
        left -= len(data)
        if left and not data:
            raise ResponseError(f"the file has become shorter while it was sent: {left} bytes are missing")
        if not exchange.try_send(data, left > 0):
            await exchange.finish_send()
        if not left or exchange.link == DEAD:
            return
        most = min(left, PIECE)
        piece = reader.try_read(most)
        data = await reader.read(most) if piece is None else piece
