"""Standard output and error that neither fail nor block.

Facts      A write to a pipe without a reader fails, and so does a write to a full disk. A write to a pipe whose reader
           has stalled blocks. A `TextIOWrapper` whose flush failed keeps its text, fails again when the interpreter
           exits, and turns the exit code into 120. O_NONBLOCK belongs to every process that shares the descriptor.
Hazard     A log line that cannot be written ends requests, or the server. One that blocks holds every deadline. A queue
           of lines for a reader that has stopped grows, and is lost as well when the process is killed.
Answer     A stream drops what cannot be written and counts the lines. When writing works again, it first ends a line
           that was torn, and writes one that says how many were lost, and why. It waits for a reader that lags PATIENCE
           in all; after a loss it does not wait until a second has passed and a write has succeeded. So a reader that
           has stopped holds the event loop once, and one that lags all the time for 5 % of it at most.
Cost       One more system call per write. Lines are lost that would only have been late. A write to a regular file
           blocks for as long as its file system does.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# seconds; a healthy reader takes a full pipe in less, and a deadline that is this late still counts as met
PATIENCE = 0.05

# seconds after a loss in which writes do not wait
_IMPATIENT = 1.0

# why lines were lost without an error of the system
_NOT_READ = "they were not read in time"

# makes the line that reports lost lines, from their number and the reason
Notice = Callable[[int, str], bytes]

# seconds that each of the last lines may wait: after the drain no deadline waits for the event loop
_LAST_PATIENCE = 1.0

_STDOUT = 1
_STDERR = 2


class _Output(io.RawIOBase):
    """A descriptor to which every write succeeds."""

    def __init__(self, fd: int, notice: Notice) -> None:
        self._shared_fd = fd
        self._fd = _non_blocking(fd)
        self._notice = notice
        self._lost = 0
        # why the last lines were lost
        self._why = ""
        # the last byte that was written did not end a line
        self._in_line = False
        self._patience = PATIENCE
        self._patient_from = 0.0
        # nothing was written since the last loss
        self._stuck = False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write whole lines where possible, at most PIPE_BUF bytes at once: other processes' lines are not mixed into
        those (POSIX). Drop the rest; return the length of `data` in any case."""
        chunk = bytes(data)
        limit = self._limit()
        written = self._write(chunk, limit) if self._reported(limit) else 0
        if written < len(chunk):
            self._lost += chunk.count(b"\n", written)
            self._patient_from = time.monotonic() + _IMPATIENT
            self._stuck = True
        return len(chunk)

    def _limit(self) -> float:
        """Return the time until which a write may wait."""
        now = time.monotonic()
        return now + self._patience if now >= self._patient_from and not self._stuck else now

    def count_anew(self, notice: Notice) -> None:
        """Forget the lines that were lost so far, and report those that are lost from now on by `notice`."""
        self._lost = 0
        self._notice = notice

    def be_patient(self) -> None:
        """From now on wait longer for a reader that lags, also right after a loss."""
        self._patience = _LAST_PATIENCE
        self._patient_from = 0.0
        self._stuck = False

    def _reported(self, limit: float) -> bool:
        """Report what was lost, if anything was; return False if that is not possible now."""
        if self._lost:
            notice = (b"\n" if self._is_torn() else b"") + self._notice(self._lost, self._why)
            if self._write(notice, limit) < len(notice):
                return False
            self._lost = 0
        return True

    def _write(self, chunk: bytes, limit: float) -> int:
        """Return how many bytes were written: all of them, or those that were taken before an error or `limit`."""
        written = 0
        waiting = select.poll()
        waiting.register(self._fd, select.POLLOUT)
        while written < len(chunk):
            end = chunk.rfind(b"\n", written, written + select.PIPE_BUF) + 1 or written + select.PIPE_BUF
            try:
                if not waiting.poll(max(limit - time.monotonic(), 0.0) * 1000.0):
                    self._why = _NOT_READ
                    break
                written += os.write(self._fd, chunk[written:end])
            except OSError as error:
                self._why = _NOT_READ if isinstance(error, BlockingIOError) else error.strerror or str(error)
                break
        if written:
            self._in_line = chunk[written - 1 : written] != b"\n"
            self._stuck = False
        return written

    def _is_torn(self) -> bool:
        """Return True if the last line has no end. In a file that may be one of another process, whose disk was full in
        the middle of it."""
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                return self._in_line
            # the descriptor itself may be for writing only
            fd = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY)
        except OSError:
            return self._in_line
        try:
            size = os.fstat(fd).st_size
            return size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        except OSError:
            return self._in_line
        finally:
            os.close(fd)

    def fileno(self) -> int:
        return self._shared_fd

    def isatty(self) -> bool:
        return os.isatty(self._shared_fd)

    def writable(self) -> bool:
        return True

    def release(self) -> None:
        """Close the descriptor of this object's own, if it has one. For tests: a process keeps its streams."""
        if self._fd != self._shared_fd:
            os.close(self._fd)
            self._fd = self._shared_fd


def guard_standard_streams() -> TextIO:
    """Replace `sys.stdout` and `sys.stderr` by streams that neither fail nor block, and return one for the log.

    The log's stream is another one on stdout's descriptor, so that an application that closes `sys.stdout` does not
    close the log. Output is line-buffered and stays in order between the two.
    """
    _reserve_standard_descriptors()
    _flush(sys.stdout)
    sys.stdout = open_stream(_STDOUT, plain_notice)
    guard_stderr()
    return open_stream(_STDOUT, plain_notice)


def guard_stderr() -> None:
    """Replace `sys.stderr` by a stream that neither fails nor blocks, unless it is one already."""
    _reserve_standard_descriptors()
    if not isinstance(getattr(sys.stderr, "buffer", None), _Output):
        _flush(sys.stderr)
        sys.stderr = open_stream(_STDERR, plain_notice)


def open_stream(fd: int, notice: Notice) -> TextIO:
    """Return a line-buffered text stream on `fd` whose writes neither fail nor block. Does not close `fd`."""
    # no BufferedWriter between them: it would write a line again if a signal's exception came out of `write`
    raw: Any = _Output(fd, notice)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def count_losses_anew(stream: TextIO, notice: Notice) -> None:
    """Let a stream of `open_stream` report by `notice` the lines that are lost from now on, and no earlier ones. For a
    process that was just forked: the other one reports those."""
    raw: Any = stream.buffer
    raw.count_anew(notice)


def write_last_lines_to(stream: TextIO) -> None:
    """Let a stream of `open_stream` wait longer for its reader, because nothing else waits any more."""
    raw: Any = stream.buffer
    raw.be_patient()


def plain_notice(lost: int, why: str) -> bytes:
    """Return the line that says that `lost` lines before it could not be written, and why."""
    return f"deadlined: {lost_lines(lost, why)}\n".encode()


def lost_lines(lost: int, why: str, kind: str = "") -> str:
    """Say how many lines were lost, and why."""
    return f"1 {kind}line was lost: {why}" if lost == 1 else f"{lost} {kind}lines were lost: {why}"


def _flush(stream: TextIO | None) -> None:
    """Write what a standard stream has kept, if there is one and that is possible."""
    if stream is not None:
        with suppress(OSError, ValueError):
            stream.flush()


def _reserve_standard_descriptors() -> None:
    """Open /dev/null as each standard descriptor that is closed: a connection that got its number would receive what
    is meant for stdout or stderr."""
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= _STDERR:
        fd = os.open(os.devnull, os.O_RDWR)
    os.close(fd)


def _non_blocking(fd: int) -> int:
    """Open the pipe or terminal behind `fd` once more, non-blocking, where the system allows it; else return `fd`.

    Although `select` reports a pipe as writable, it may be full again because of another process that shares it; a
    terminal that is stopped (Ctrl-S) may have room for a part of a line.
    """
    if stat.S_ISFIFO(os.fstat(fd).st_mode) or os.isatty(fd):
        with suppress(OSError):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    return fd
