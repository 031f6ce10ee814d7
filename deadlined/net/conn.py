"""A byte stream with deadlines: Go's net.Conn as a stream of trio.

Facts      A non-blocking call says at once whether it can be served. The kernel reports an edge only after such a
           call has said "would block".
Hazard     Waiting first would hang on data that came before; catching every OSError would swallow the deadline's own
           error.
Answer     Every operation is tried first and waits after, but for a receive after one that emptied the kernel's buffer:
           the next edge is still to come then. Errors of the kernel are translated where the call is made.
Cost       A system call that finds nothing, where that is not known.
"""

from __future__ import annotations

import errno
import select
import socket as stdlib
import struct
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from trio.lowlevel import checkpoint

from ..poll import OK, PARKED
from ..runtime import ReadyCallback, ScheduledCheckpoint, current_pump, yield_shielded
from .side import Side, closed_error, require_open

Buffer = bytes | bytearray | memoryview

# bytes; what trio's SocketStream takes, and below glibc's mmap threshold (128 KiB), above which every receive would map
# and unmap its buffer
RECEIVE_SIZE: Final = 65536

# bytes that the kernel holds for a peer that does not read. Linux's own limit let one stalled reader on loopback hold
# 2.2 MB, this one 66 KiB; trio's is 16 KiB, a larger one lets a fast sender sleep longer between two wakes
_UNSENT: Final = 64 * 1024

# linger on, for 0 seconds: close() throws away what is unsent and the peer gets an RST
_LINGER_ZERO: Final = struct.pack("ii", 1, 0)


class Conn(trio.abc.HalfCloseableStream):
    """A connected stream socket whose reads and writes end by their deadlines. Make it with `open_tcp_stream`,
    `open_unix_stream`, `Listener.accept` or `Conn.from_socket`.

    A deadline is an absolute time on the run's clock (`trio.current_time()`); `inf` is none, the default. It applies to
    all future and pending operations of its direction, and stays until it is moved: an idle timeout is a read
    deadline that is moved after every read. Setting one is a store, and may be done from any task of the run:

        set_read_deadline(when)     `receive_some` and its kin raise DeadlineExceeded at `when`
        set_write_deadline(when)    `send_all` and its kin
        set_deadline(when)          both
        set_read_timeout(seconds)   the read deadline, so many seconds from now, for less: the clock is read inside;
                                    likewise for write and for both

    A time in the past ends the pending operation at once, and every later one until the deadline is moved, even if
    bytes are waiting. NaN is a ValueError; on a closed connection ClosedResourceError.

    After DeadlineExceeded the connection is whole: move the deadline and go on. After a write deadline the first
    `error.sent` bytes were taken by the kernel and the rest was not. Errors otherwise are trio's: ClosedResourceError
    (closed here), BusyResourceError (two tasks in one direction), BrokenResourceError (the peer or the network).

    Under a `trio.SSLStream` a read deadline that passes after the handshake can be moved and the stream goes on; one
    that passes during the handshake, and a write deadline at any time, leave the SSLStream broken.
    """

    __slots__ = (
        "__weakref__",
        "_desc",
        "_ended",
        "_pump",
        "_reading",
        "_socket",
        "_turn",
        "_writing",
        "set_read_deadline",
        "set_read_timeout",
        "set_write_deadline",
        "set_write_timeout",
    )

    set_read_deadline: Callable[[float], None]
    set_write_deadline: Callable[[float], None]
    set_read_timeout: Callable[[float], None]
    set_write_timeout: Callable[[float], None]

    def __init__(self, socket: stdlib.socket, is_tcp: bool = False) -> None:
        pump = current_pump()
        self._desc = pump.open(socket.fileno())
        # on a unix socket a read ends where a descriptor was passed, whatever comes behind it (unix(7))
        self._desc.read.eof_or_urgent_seen = not is_tcp
        self._socket = socket
        self._pump = pump
        self._reading = Side("read", self._desc.read)
        self._writing = Side("write", self._desc.write)
        self._ended = False
        self._turn: ScheduledCheckpoint | None = None
        # the halves' own methods: a forwarding call would cost more than what it forwards to
        self.set_read_deadline = self._desc.read.set_deadline
        self.set_write_deadline = self._desc.write.set_deadline
        self.set_read_timeout = self._desc.read.set_timeout
        self.set_write_timeout = self._desc.write.set_timeout

    @classmethod
    def from_socket(cls, socket: stdlib.socket) -> Conn:
        """Take over a connected SOCK_STREAM socket that the caller made (a `socketpair`, one from systemd).

        It becomes non-blocking and belongs to the Conn, which closes it. ValueError for another type of socket, OSError
        if the event queue does not take it; then it is still the caller's.
        """
        if socket.type != stdlib.SOCK_STREAM:
            raise ValueError(f"a Conn needs a SOCK_STREAM socket, not {socket.type!r}")
        socket.setblocking(False)
        return cls(socket, set_options(socket))

    @property
    def socket(self) -> stdlib.socket:
        """The socket, for options and addresses; non-blocking, and closed by the Conn."""
        return self._socket

    @property
    def read_deadline(self) -> float:
        """As it was last set; `inf` if there is none."""
        return self._desc.read.deadline

    @property
    def write_deadline(self) -> float:
        """As it was last set; `inf` if there is none."""
        return self._desc.write.deadline

    def set_deadline(self, when: float) -> None:
        """Set the read and the write deadline."""
        require_open(self._desc.read)
        self._desc.set_deadline(when)

    def set_timeout(self, seconds: float) -> None:
        """Set the read and the write deadline to one time, so many seconds from now."""
        require_open(self._desc.read)
        self._desc.set_timeout(seconds)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes, at least one; b"" once the peer has ended its side.

        `max_bytes` at least 1 (ValueError); None leaves it to the Conn. Nothing is lost by DeadlineExceeded or a
        cancellation. BrokenResourceError if the connection was reset.
        """
        size = RECEIVE_SIZE if max_bytes is None else _size(max_bytes)
        side = self._reading
        side.enter()
        try:
            data = None
            if side.half.ready:
                # bytes are there: they can wait a turn, which is the checkpoint
                turn = self._turn = self._turn or ScheduledCheckpoint(side.half)
                side.woken(await turn)
                data = self._receive(size)
            elif not side.half.drained or side.half.check() != OK:
                await side.begin()
                data = self._receive(size)
            while data is None:
                side.woken(await side.parking)
                data = self._receive(size)
            if 0 < len(data) < size:
                side.half.drain()
            if not side.slept:
                await yield_shielded
            return data
        finally:
            side.leave()

    async def __anext__(self) -> bytes:
        """`receive_some` for `async for`, which ends with the peer's side."""
        data = await self.receive_some()
        if not data:
            raise StopAsyncIteration
        return data

    async def send_all(self, data: Buffer) -> None:
        """Hand all of `data` to the kernel, waiting while its buffer is full.

        After DeadlineExceeded its `sent` says how many bytes were taken; after a cancellation that is not known, and
        the stream is of no more use to most protocols.
        """
        side = self._writing
        side.enter()
        try:
            await side.begin()
            self._require_open_end()
            # most sends are taken whole: views and slices are for the others
            if not isinstance(data, bytes) or self._offer(side, data) < len(data):
                await self._send_rest(side, data)
            if not side.slept:
                await yield_shielded
        finally:
            side.leave()

    async def wait_send_all_might_not_block(self) -> None:
        """Sleep until the kernel's buffer has room again; the write deadline applies."""
        side = self._writing
        side.enter()
        try:
            await side.begin()
            while not _writable(self._socket):
                side.woken(await side.parking)
            if not side.slept:
                await yield_shielded
        finally:
            side.leave()

    async def send_eof(self) -> None:
        """End our side: the peer will read b"". Idempotent; receiving goes on."""
        side = self._writing
        side.enter()
        try:
            await checkpoint()
            self.shutdown_write()
        finally:
            side.leave()

    async def aclose(self) -> None:
        """Close at once; pending operations raise ClosedResourceError. Idempotent. Bytes in the kernel's buffer are
        still delivered if the peer takes them."""
        self.close()
        await checkpoint()

    def close(self) -> None:
        """`aclose` without the checkpoint; also fit for a callback, or after the run."""
        self.set_read_deadline = self.set_write_deadline = _deadline_of_closed
        self.set_read_timeout = self.set_write_timeout = _deadline_of_closed
        self._pump.close(self._desc)
        self._socket.close()

    def abort(self) -> None:
        """Close, throw away what is unsent, and reset the connection (RST): the end for a peer that does not read.

        Idempotent, synchronous. On a unix socket it is `close`.
        """
        if self._socket.fileno() >= 0 and self._socket.family != stdlib.AF_UNIX:
            self._socket.setsockopt(stdlib.SOL_SOCKET, stdlib.SO_LINGER, _LINGER_ZERO)
        self.close()

    def shutdown_write(self) -> None:
        """`send_eof` without the checkpoint. BrokenResourceError if the connection is gone."""
        if self._ended:
            return
        try:
            self._socket.shutdown(stdlib.SHUT_WR)
        except OSError as error:
            raise _broken(error) from error
        self._ended = True

    def try_receive(self, max_bytes: int = RECEIVE_SIZE) -> bytes | None:
        """`receive_some` if that need not wait, else None. No checkpoint: whoever loops on it must make room for
        others."""
        side = self._reading
        side.admit()
        data = self._receive(max_bytes)
        if data and len(data) < max_bytes:
            side.half.drain()
        return data

    def receive_ready(self, max_bytes: int = RECEIVE_SIZE) -> bytes | None:
        """Receive after a wait, without waiting: readiness that has come beats a deadline that has passed meanwhile, so
        the deadline is not looked at. None if the kernel has nothing. No checkpoint."""
        data = self._receive(max_bytes)
        if data and len(data) < max_bytes:
            self._reading.half.drain()
        return data

    def send_ready(self, data: Buffer) -> int:
        """`try_send` after a wait, for which the deadline is not looked at again."""
        self._require_open_end()
        return self._send(data)

    @property
    def drained(self) -> bool:
        """True if `try_receive` is known to give None: the last receive got less than it asked for, and the kernel has
        reported nothing since. Deadlines and closing do not show here."""
        return self._reading.half.drained

    def try_send(self, data: Buffer) -> int:
        """Offer `data` to the kernel; how many bytes it took, 0 if its buffer is full. No checkpoint."""
        self._writing.admit()
        self._require_open_end()
        return self._send(data)

    def wait_readable(self) -> Awaitable[None]:
        """To be awaited after `try_receive` gave None: sleep until it is worth trying again, or the read deadline."""
        return self._reading.rest()

    def call_when_readable(self, sleeper: ReadyCallback) -> bool:
        """`wait_readable` without a task: True if `sleeper` will be called, False if it is worth trying now."""
        return self._reading.half.park(sleeper) == PARKED

    def resume_readable(self, callback: ReadyCallback) -> bool:
        """After `callback` was called: True if `receive_ready` is worth trying, False if the callback will be called
        again because the reason of the call has gone away. DeadlineExceeded if the deadline has passed and nothing is
        known to have come; ClosedResourceError once closed."""
        status = self._reading.half.resume(callback)
        if status != PARKED:
            self._reading.woken(status)
        return status != PARKED

    def wait_writable(self) -> Awaitable[None]:
        """To be awaited after `try_send` took less than all: sleep until there is room again, or the write deadline."""
        return self._writing.rest()

    async def _send_rest(self, side: Side, data: Buffer) -> None:
        with memoryview(data) as given, given.cast("B") as view:
            size = len(view)
            while side.sent < size:
                if not self._offer(side, view[side.sent :]):
                    side.woken(await side.parking)

    def _offer(self, side: Side, data: Buffer) -> int:
        """Let the kernel take what it will; how much that was."""
        taken = self._send(data)
        side.sent += taken
        return taken

    def _require_open_end(self) -> None:
        if self._ended:
            raise trio.ClosedResourceError("our side of the connection was ended with send_eof()")

    def _receive(self, size: int) -> bytes | None:
        try:
            return self._socket.recv(size)
        except BlockingIOError:
            return None
        except OSError as error:
            raise _broken(error) from error

    def _send(self, data: Buffer) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _broken(error) from error


def set_options(socket: stdlib.socket) -> bool:
    """The options of TCP that every `Conn` has, if it is a socket of TCP; is it?"""
    is_tcp = socket.family in (stdlib.AF_INET, stdlib.AF_INET6)
    if is_tcp:
        # as trio does: small messages leave at once
        socket.setsockopt(stdlib.IPPROTO_TCP, stdlib.TCP_NODELAY, 1)
        if hasattr(stdlib, "TCP_NOTSENT_LOWAT"):
            socket.setsockopt(stdlib.IPPROTO_TCP, stdlib.TCP_NOTSENT_LOWAT, _UNSENT)
    return is_tcp


def _size(max_bytes: int) -> int:
    if not isinstance(max_bytes, int):
        raise TypeError(f"max_bytes must be an int, not {type(max_bytes).__name__}")
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, not {max_bytes}")
    return max_bytes


def _writable(socket: stdlib.socket) -> bool:
    poll = select.poll()
    poll.register(socket, select.POLLOUT)
    return bool(poll.poll(0))


def _broken(error: OSError) -> trio.BrokenResourceError | trio.ClosedResourceError:
    if error.errno == errno.EBADF:
        return closed_error()
    broken = trio.BrokenResourceError(f"the connection is broken: {error.strerror or error}")
    # set here, because `raise ... from` does not do it in compiled code
    broken.__cause__ = error
    return broken


def _deadline_of_closed(when: float) -> None:
    raise closed_error()
