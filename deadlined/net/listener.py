"""A listening socket that survives the errors of accept(2) and ends a wait at its deadline.

Facts      accept(2) reports the errors of the connection it would have returned (ECONNABORTED and the network's own),
           and fails with EMFILE, ENFILE, ENOBUFS or ENOMEM while the process or the machine lacks resources. Where a
           limit of memory is the process's own, Python raises MemoryError.
Hazard     A server that stops at either can be taken down by one client. One that retries at once burns a core, because
           the waiting connection keeps the listener ready. One that waits for an edge sleeps for ever, because that
           connection's edge is over.
Answer     An error of one connection is skipped. After a shortage, accept waits 5 ms, doubled up to 1 s, as Go does.
Cost       Up to a second of delay for the first connection after a shortage.
"""

from __future__ import annotations

import errno
import logging
import os
import socket as stdlib
import sys
from collections.abc import Callable

import trio

from ..runtime import current_host
from .conn import Conn
from .errors import SHORTAGES, broken_error, close_socket
from .side import Side, require_open, shown_name
from .sockets import is_readable, require_listening, set_options

# seconds; Go's net/http waits 5 ms and doubles up to 1 s
_BACKOFF_FIRST = 0.005
_BACKOFF_MOST = 1.0

# the connection that was to be accepted is gone or was refused by a firewall (accept(2), "Error handling")
_SKIPPED = frozenset(
    getattr(errno, name)
    for name in (
        "ECONNABORTED",
        "EPERM",
        "EPROTO",
        "ENETDOWN",
        "ENOPROTOOPT",
        "EHOSTDOWN",
        "ENONET",
        "EHOSTUNREACH",
        "EOPNOTSUPP",
        "ENETUNREACH",
        "ETIMEDOUT",
    )
    if hasattr(errno, name)
)

# on Linux an accepted socket has the options that the listening one had when the connection arrived; other systems do
# not promise it
_INHERITS = sys.platform == "linux"

_log = logging.getLogger("deadlined.net")


class Listener(trio.abc.Listener[Conn]):
    """A listening socket; `accept` gives a `Conn`. Make it with `open_tcp_listeners`, `open_unix_listener` or
    `Listener.from_socket`."""

    def __init__(
        self, socket: stdlib.socket, unlink: Callable[[], object] | None = None, has_options: bool = False
    ) -> None:
        require_listening(socket)
        self._host = current_host()
        socket.setblocking(False)
        self._desc = self._host.open(socket.fileno())
        self._socket = socket
        self._accepting = Side("accept", self._desc.read, self._host)
        # seconds that `accept` waits after the next shortage
        self._delay = _BACKOFF_FIRST
        # removes the file of a unix socket
        self._unlink = unlink
        # the options of a `Conn` were set before listen()
        self._has_options = has_options and _INHERITS

    @classmethod
    def from_socket(cls, socket: stdlib.socket) -> Listener:
        """Take over a listening SOCK_STREAM socket (from systemd, or bound by the caller). ValueError for any other
        socket, TypeError for one of an event loop or with TLS. macOS and OpenBSD cannot tell whether a socket listens:
        `accept` fails there if it does not."""
        return cls(socket)

    def __repr__(self) -> str:
        half = self._desc.read
        if half.closed:
            return "<Listener closed>"
        return f"<Listener {shown_name(self._socket.getsockname)} deadline={half.deadline}>"

    @property
    def socket(self) -> stdlib.socket:
        """The listening socket, for options and its address."""
        return self._socket

    @property
    def deadline(self) -> float:
        """The deadline as it was last set; `inf` if there is none."""
        return self._desc.read.deadline

    def set_deadline(self, when: float) -> None:
        """Set the deadline of pending and future accepts: absolute seconds on the loop's clock; `inf` is none.

        They fail at `when` even if a connection is waiting. Do not use it under `trio.serve_listeners`, which ends when
        an accept fails. ClosedResourceError once closed.
        """
        require_open(self._desc.read)
        self._desc.read.set_deadline(when)

    def set_timeout(self, seconds: float) -> None:
        """Set the deadline, in seconds from now; at or below 0 it expires at once. NaN is a ValueError."""
        require_open(self._desc.read)
        self._desc.read.set_timeout(seconds)

    async def accept(self) -> Conn:
        """Wait for the next connection. DeadlineExceeded at the deadline; ClosedResourceError once closed."""
        accepted: list[Conn] = []
        await self.accept_if(_always, accepted.append)
        return accepted[0]

    async def accept_if(self, has_room: Callable[[], bool], begin: Callable[[Conn], object]) -> bool:
        """Wait for the next connection, and call `begin(conn)` before other tasks run. Return False, and accept
        nothing, if one is waiting and `has_room()` is False. Errors as `accept`. `begin` must not raise."""
        side = self._accepting
        side.enter()
        try:
            await side.begin()
            self._delay = _BACKOFF_FIRST
            conn: Conn | None = None
            while conn is None:
                if has_room():
                    try:
                        conn = self._accept_now()
                    except OSError as error:
                        await self._recover(error)
                        continue
                elif is_readable(self._socket):
                    break
                if conn is None:
                    side.woken(await side.parking)
                    self._delay = _BACKOFF_FIRST
            if conn is not None:
                begin(conn)
            if not side.slept:
                await side.finish()
            return conn is not None
        finally:
            side.leave()

    def try_accept(self) -> Conn | None:
        """Accept a connection that is waiting. No checkpoint: a caller that loops must let other tasks run.

        None if no connection is waiting or the next one cannot be accepted now; `accept` then waits for one, skips it
        or waits until a shortage is over. Errors as `accept`, and BusyResourceError while a task is in `accept`.
        """
        self._accepting.admit()
        try:
            return self._accept_now()
        except OSError as error:
            if error.errno in SHORTAGES or error.errno in _SKIPPED:
                return None
            raise broken_error(error) from error

    def _accept_now(self) -> Conn | None:
        """Accept without waiting, None if no connection waits. OSError as accept(2); ENOMEM also for a MemoryError, and
        ECONNABORTED if the connection could not be set up and was closed."""
        try:
            return self._accept_one()
        except MemoryError:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from None

    def _accept_one(self) -> Conn | None:
        try:
            socket = self._socket.accept()[0]
        except BlockingIOError:
            # the caller waits, outside of this block: else an error of the wait would have this one as its context
            return None
        try:
            return Conn(socket, self._has_options or set_options(socket))
        except OSError as error:
            # an error of this connection, or a limit of the event queue (ENOSPC: fs.epoll.max_user_watches)
            socket.close()
            _log.warning("closed a new connection that could not be set up: %s", error.strerror or error)
            raise ConnectionAbortedError(errno.ECONNABORTED, "the connection could not be set up") from error
        except BaseException:
            socket.close()
            raise

    async def _recover(self, error: OSError) -> None:
        """Wait until accept(2) may be called again after `error`. Raise if it never may."""
        if error.errno in SHORTAGES:
            await self._back_off(error)
        elif error.errno in _SKIPPED:
            # an error that persists must leave room for other tasks, a cancellation and a deadline
            self._accepting.woken(await self._accepting.turn())
        else:
            raise broken_error(error) from error

    async def _back_off(self, shortage: OSError) -> None:
        """Wait for the present delay, or until the deadline or a close. The next delay is twice as long."""
        delay, self._delay = self._delay, min(2 * self._delay, _BACKOFF_MOST)
        _log.warning("cannot accept a connection: %s; trying again in %g s", shortage.strerror, delay)
        # readiness does not end this wait: the listener is ready all the time
        await self._accepting.pause(self._host.clock.now() + delay)

    async def aclose(self) -> None:
        """Stop listening; a pending accept raises ClosedResourceError. The file of a unix socket is removed unless it
        was replaced. Idempotent."""
        self.close()
        await self._host.checkpoint()

    def close(self) -> None:
        """Do what `aclose` does, without the checkpoint. May be called after the event loop has ended, and in a forked
        child, where it closes the child's descriptor only."""
        self._host.close(self._desc)
        try:
            if self._unlink is not None and not self._host.is_inherited:
                unlink, self._unlink = self._unlink, None
                unlink()
        finally:
            close_socket(self._socket)


def _always() -> bool:
    return True
