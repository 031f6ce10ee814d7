"""A byte stream with deadlines: Go's net.Conn, on trio and on asyncio.

Facts      A non-blocking call says at once whether it can be served. The kernel reports the next edge only after a call
           has said "would block".
Hazard     An operation that waits first hangs on data that arrived before. Code that catches every OSError also
           catches the deadline's error.
Answer     Every operation is tried first and waits only if it would block. The exception is a receive after one that
           emptied the kernel's buffer: it waits at once, because the next edge is still to come. Kernel errors are
           translated where the call is made (`sockets.py`).
Cost       A system call that finds nothing, when it is not known that the buffer is empty.
"""

from __future__ import annotations

import socket as stdlib
from collections.abc import Awaitable, Callable, Sequence

import trio

from ..poll import OK, PARKED
from ..runtime import ReadyCallback, current_host
from .errors import close_socket, closed_error
from .side import Side, ask_if_drained, deadline_of_closed, require_open, shown
from .sockets import (
    RECEIVE_SIZE,
    Buffer,
    StreamSocket,
    checked_size,
    is_writable,
    require_stream,
    reset_on_close,
    set_options,
)


class Conn(trio.abc.HalfCloseableStream):
    """A connected stream socket whose reads and writes end by their deadlines. Make it with `open_tcp_stream`,
    `open_unix_stream`, `Listener.accept` or `Conn.from_socket`.

    A deadline is an absolute time on the event loop's clock (`deadlined.current_time()`); `inf`, the default, is
    none. It applies to the pending and to all future operations of its direction, and stays until it is moved: an idle
    timeout is a read deadline that is moved after every read. Any task of the loop may set one, at the cost of a store;
    another thread must have the loop do it:

        set_read_deadline(when)     `receive_some` and the other reads raise DeadlineExceeded at `when`
        set_write_deadline(when)    the same for `send_all` and the other writes
        set_deadline(when)          both
        set_read_timeout(seconds)   the read deadline, in seconds from now; it costs less, because the clock is read
                                    inside. `set_write_timeout` and `set_timeout` likewise

    A time in the past ends the pending operation, and every later one until the deadline is moved, even if bytes are
    waiting. It does so at once, or, if the deadline before it has passed too, as soon as a busy loop or a coarse queue
    notices that. NaN raises ValueError, a connection that this program has closed ClosedResourceError.

    After DeadlineExceeded the connection can be used: move the deadline and continue. After a write deadline the
    kernel has taken the first `error.sent` bytes and no others. The other errors are trio's, and each is also what an
    asyncio program expects: ClosedResourceError (this program closed it; an OSError), BrokenResourceError (the peer or
    the network; a ConnectionError), BusyResourceError (two tasks in one direction; a RuntimeError).

    b"" is always the end that the peer has given: all of its stream has come. A connection that breaks before that end
    raises BrokenResourceError, after what had come, also if a send was the first to find it broken.

    `TlsConn` is TLS under the same rules. Under a `trio.SSLStream`, a read deadline that passes after the handshake can
    be moved and the stream continues; one that passes earlier, or a write deadline at any time, leaves it broken.
    """

    __slots__ = {
        "__weakref__": None,
        "_desc": None,
        "_ended": None,
        "_host": None,
        "_kernel": None,
        "_reading": None,
        "_socket": None,
        "_writing": None,
        "set_read_deadline": "Set the read deadline: absolute seconds on the loop's clock; `inf` is none.",
        "set_read_timeout": "Set the read deadline, in seconds from now; at or below 0 it expires at once.",
        "set_write_deadline": "Set the write deadline: absolute seconds on the loop's clock; `inf` is none.",
        "set_write_timeout": "Set the write deadline, in seconds from now; at or below 0 it expires at once.",
    }

    set_read_deadline: Callable[[float], None]
    set_write_deadline: Callable[[float], None]
    set_read_timeout: Callable[[float], None]
    set_write_timeout: Callable[[float], None]

    def __init__(self, socket: stdlib.socket, is_tcp: bool | None = None) -> None:
        if is_tcp is None:
            # the socket is a program's; for those that were dialed or accepted the caller knows it
            require_stream(socket)
        host = current_host()
        # one that blocks would hang the event loop
        socket.setblocking(False)
        self._desc = host.open(socket.fileno())
        # on a unix socket a read ends where a descriptor was passed, even if more bytes follow (unix(7))
        self._desc.read.eof_or_urgent_seen = not is_tcp
        self._socket = socket
        self._kernel = StreamSocket(socket)
        self._host = host
        self._reading = Side("read", self._desc.read, host)
        self._writing = Side("write", self._desc.write, host)
        self._ended = False
        # the halves' own methods, because a forwarding call would cost more than the method
        self.set_read_deadline = self._desc.read.set_deadline
        self.set_write_deadline = self._desc.write.set_deadline
        self.set_read_timeout = self._desc.read.set_timeout
        self.set_write_timeout = self._desc.write.set_timeout

    @classmethod
    def from_socket(cls, socket: stdlib.socket) -> Conn:
        """Take over a connected SOCK_STREAM socket that the caller made (a `socketpair`, one from systemd).

        It becomes non-blocking, and the Conn closes it. ValueError for another type of socket, or one that listens,
        TypeError for one of an event loop or with TLS; OSError if the event queue refuses it. After an error it still
        belongs to the caller.
        """
        require_stream(socket)
        return cls(socket, set_options(socket))

    def __repr__(self) -> str:
        return shown(self._socket, self._desc.read, self._desc.write, self._ended)

    @property
    def socket(self) -> stdlib.socket:
        """The non-blocking socket, for options and addresses. The Conn closes it."""
        return self._socket

    @property
    def read_deadline(self) -> float:
        """The read deadline as it was last set; `inf` if there is none."""
        return self._desc.read.deadline

    @property
    def write_deadline(self) -> float:
        """The write deadline as it was last set; `inf` if there is none."""
        return self._desc.write.deadline

    @property
    def is_inherited(self) -> bool:
        """True in a forked child: the connection belongs to the process that has made it."""
        return self._host.is_inherited

    def set_deadline(self, when: float) -> None:
        """Set the read and the write deadline."""
        require_open(self._desc.read)
        self._desc.set_deadline(when)

    def set_timeout(self, seconds: float) -> None:
        """Set the read and the write deadline to the same time, `seconds` from now."""
        require_open(self._desc.read)
        self._desc.set_timeout(seconds)

    # operations that wait

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive the next bytes, at least one; b"" once the peer has ended its side.

        `max_bytes` must be at least 1 (ValueError); None means 64 KiB. DeadlineExceeded and a cancellation lose no
        bytes. BrokenResourceError if the connection was reset.
        """
        size = RECEIVE_SIZE if max_bytes is None else checked_size(max_bytes)
        side = self._reading
        side.enter()
        try:
            data = None
            if side.half.ready:
                # bytes are waiting: the checkpoint may come first
                side.woken(await side.turn())
                data = self._kernel.receive(size)
            elif not side.half.drained or side.half.check() != OK:
                await side.begin()
                data = self._kernel.receive(size)
            while data is None:
                side.woken(await side.parking)
                data = self._kernel.receive(size)
            if 0 < len(data) < size:
                side.half.drain()
            if not side.slept:
                await side.finish()
            self._writing.has_yielded = True
            return data
        finally:
            side.leave()

    async def __anext__(self) -> bytes:
        """Receive the next bytes for `async for`, which ends when the peer has ended its side."""
        if data := await self.receive_some():
            return data
        raise StopAsyncIteration

    async def send_all(self, data: Buffer) -> None:
        """Hand all of `data` to the kernel, waiting while its buffer is full.

        After DeadlineExceeded, `error.sent` is the number of bytes that the kernel took. After a cancellation it is
        unknown, and most protocols cannot continue on the stream. A checkpoint; on asyncio not after a receive.
        """
        side = self._writing
        side.enter()
        try:
            await side.begin()
            self._require_open_end()
            # the kernel takes most sends whole: only the others need views and slices
            if not isinstance(data, bytes) or self._offer(side, data) < len(data):
                await self._send_remaining(side, data)
            if not side.slept:
                await side.finish()
        finally:
            side.leave()

    async def wait_send_all_might_not_block(self) -> None:
        """Sleep until the kernel's buffer has room. The write deadline applies."""
        side = self._writing
        side.enter()
        try:
            await side.begin()
            while not is_writable(self._socket):
                side.woken(await side.parking)
            if not side.slept:
                await side.finish()
        finally:
            side.leave()

    async def send_eof(self) -> None:
        """End this side of the stream: the peer will read b"". Receiving is still possible. Idempotent."""
        side = self._writing
        side.enter()
        try:
            await self._host.checkpoint()
            self.shutdown_write()
        finally:
            side.leave()

    async def aclose(self) -> None:
        """Close at once; pending operations raise ClosedResourceError. The kernel still delivers the bytes in its
        buffer if the peer reads them. Idempotent."""
        self.close()
        await self._host.checkpoint()

    # operations that never wait; none is a checkpoint

    def close(self) -> None:
        """Do what `aclose` does, without the checkpoint. May be called from callbacks, after the event loop has ended,
        and in a forked child: there every close closes the child's descriptor only."""
        self.set_read_deadline = self.set_write_deadline = deadline_of_closed
        self.set_read_timeout = self.set_write_timeout = deadline_of_closed
        self._host.close(self._desc)
        close_socket(self._socket)

    def abort(self) -> None:
        """Discard unsent bytes, reset the connection (RST) and close: for a peer that does not read. On a unix socket
        it is `close`. No checkpoint. Idempotent."""
        if not self.is_inherited:
            reset_on_close(self._socket)
        self.close()

    def shutdown_write(self) -> None:
        """Do what `send_eof` does, without the checkpoint. BrokenResourceError if the connection is gone."""
        if not self._ended:
            self._kernel.shutdown_write()
            self._ended = True

    def try_receive(self, max_bytes: int = RECEIVE_SIZE) -> bytes | None:
        """Receive bytes that are waiting, as `receive_some`; None if there are none. No checkpoint: a caller that loops
        must let other tasks run."""
        self._reading.admit()
        return self.receive_ready(max_bytes)

    def receive_ready(self, max_bytes: int = RECEIVE_SIZE) -> bytes | None:
        """Receive after a wait, without waiting: readiness that has come beats a deadline that has passed meanwhile, so
        the deadline is not checked. None if the kernel has nothing. No checkpoint."""
        data = self._kernel.receive(max_bytes)
        if data and len(data) < max_bytes:
            self._reading.half.drain()
        return data

    @property
    def drained(self) -> bool:
        """True if `try_receive` would return None: the last receive got less than it asked for, or `ask_if_drained` has
        found nothing, and the kernel has reported no edge since. An expired deadline or a close does not change it."""
        return self._reading.half.drained

    def ask_if_drained(self) -> bool:
        """Return `drained`; if it is False and the socket is open, first ask the kernel by poll(2), and mark the side
        drained if there are no bytes, no end and no error. Receives nothing, raises nothing."""
        return ask_if_drained(self._reading.half, self._socket)

    def try_send(self, data: Buffer) -> int:
        """Offer `data` to the kernel and return the number of bytes it took, 0 if its buffer is full. No checkpoint."""
        self._writing.admit()
        return self.send_ready(data)

    def try_send_parts(self, parts: Sequence[Buffer]) -> int:
        """Do what `try_send` does with several buffers, one after another, without joining them."""
        self._writing.admit()
        return self.send_parts_ready(parts)

    def send_ready(self, data: Buffer) -> int:
        """Do what `try_send` does, after a wait: the deadline is not checked again."""
        self._require_open_end()
        return self._kernel.send(data)

    def send_parts_ready(self, parts: Sequence[Buffer]) -> int:
        """Do what `try_send_parts` does, after a wait: the deadline is not checked again."""
        self._require_open_end()
        return self._kernel.send_parts(parts)

    def admit_read(self) -> None:
        """Raise what `try_receive` would raise before it asks the kernel, for a layer above that holds received bytes.
        The next step must be to receive, unless the connection is `drained`."""
        self._reading.admit()

    def admit_write(self) -> None:
        """Raise what `try_send` would raise before it asks the kernel. The next step must be to send."""
        self._writing.admit()
        self._require_open_end()

    @property
    def peer_has_left(self) -> bool:
        """True once the kernel has reported that the peer has ended its side or the connection is broken, even if bytes
        of the peer are still unread."""
        return self._reading.half.hangup_seen

    @property
    def was_reset(self) -> bool:
        """True if the kernel has an error of the connection that no operation has raised yet. The kernel forgets it."""
        return self._kernel.take_error() != 0

    # waits for those, of a task and of a callback

    def wait_readable(self) -> Awaitable[None]:
        """Return an awaitable that sleeps until `try_receive`, which has returned None, may succeed. The read deadline
        applies. A checkpoint."""
        return self._reading.wait()

    def wait_writable(self) -> Awaitable[None]:
        """Return an awaitable that sleeps until `try_send`, which has taken less than all, may take more. The write
        deadline applies. A checkpoint."""
        return self._writing.wait()

    def call_when_readable(self, callback: ReadyCallback) -> bool:
        """Wait without a task: True if `callback.on_ready()` will be called once, when the connection may be readable,
        its read deadline has passed or it was closed. False if one of these is the case now."""
        return self._reading.half.park(callback) == PARKED

    def resume_readable(self, callback: ReadyCallback) -> bool:
        """Go on after `callback` was called: True if `receive_ready` is worth trying, False if the reason of the call
        has gone away, so that the callback will be called again. DeadlineExceeded if the deadline has passed and
        nothing is known to have come; ClosedResourceError once closed."""
        status = self._reading.half.resume(callback)
        if status != PARKED:
            self._reading.woken(status)
        return status != PARKED

    def cancel_call(self) -> None:
        """Forget the callback of `call_when_readable`. No effect if there is none."""
        self._reading.cancel_call()

    def call_when_writable(self, callback: ReadyCallback) -> bool:
        """Wait without a task: True if `callback.on_ready()` will be called once, when `try_send` may take more, the
        write deadline has passed or the connection was closed. False if `try_send` is worth trying now.
        DeadlineExceeded if the deadline has passed; ClosedResourceError once closed."""
        status = self._writing.half.park(callback)
        if status != PARKED:
            self._writing.woken(status)
        return status == PARKED

    def resume_writable(self, callback: ReadyCallback) -> bool:
        """Go on after `callback` was called: True if `send_ready` is worth trying, False if the reason of the call has
        gone away, so that the callback will be called again. Errors as `call_when_writable`."""
        status = self._writing.half.resume(callback)
        if status != PARKED:
            self._writing.woken(status)
        return status != PARKED

    def call_when_room(self, callback: ReadyCallback) -> bool:
        """Wait as `call_when_writable`, whatever the deadline, whose end calls `callback` as well. True also if a task
        waits for room, which goes before the callback, and once closed. Does not raise."""
        return self._writing.call_past_deadline(callback)

    def cancel_writable_call(self) -> None:
        """Forget the callback of `call_when_writable` or `call_when_room`. No effect if there is none."""
        self._writing.cancel_call()

    async def _send_remaining(self, side: Side, data: Buffer) -> None:
        with memoryview(data) as given, given.cast("B") as view:
            size = len(view)
            while side.sent < size:
                if not self._offer(side, view[side.sent :]):
                    side.woken(await side.parking)

    def _offer(self, side: Side, data: Buffer) -> int:
        """Offer `data` to the kernel; count and return the bytes it took."""
        taken = self._kernel.send(data)
        side.sent += taken
        return taken

    def _require_open_end(self) -> None:
        if self._ended:
            raise closed_error("this side of the connection was ended with send_eof()")
