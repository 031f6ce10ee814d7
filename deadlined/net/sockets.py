"""The sockets below the streams of this package: their calls, options and constants.

Facts      The kernel tells the error that has broken a connection once, to whichever call is first; SO_ERROR counts as
           one. From then on it says that the peer has ended its side.
Hazard     If a send gets the error, a receive takes an incomplete stream for a complete one.
Answer     `StreamSocket` keeps the error, and its receives raise it again in place of an end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket as stdlib
import ssl
import struct
import sys
from collections.abc import Sequence
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any, Final

from .errors import BrokenResourceError, ClosedResourceError, broken_error

Buffer = bytes | bytearray | memoryview

# bytes; trio's SocketStream uses the same. Above glibc's mmap threshold (128 KiB) every receive would map and unmap its
# buffer
RECEIVE_SIZE: Final = 65536

# bytes that the kernel holds for a peer that does not read. Linux's default let one stalled reader on loopback hold
# 2.2 MB, this limit 66 KiB. Trio's is 16 KiB; a larger one wakes a fast sender less often
_UNSENT: Final = 64 * 1024

# linger on, for 0 seconds: close() discards unsent bytes and the peer receives an RST
LINGER_ZERO: Final = struct.pack("ii", 1, 0)

# macOS's socket option for the bytes in the buffer for sending, which Python has no name for (sys/socket.h)
_SO_NWRITE: Final = 0x1024

# errors after which the peer's stream may still be whole. EPIPE says only that the peer reads no more, because it has
# ended, or broken with an error that was reported before; by the others the kernel refuses one call
_UNBROKEN: Final = frozenset((errno.EPIPE, errno.EMSGSIZE, errno.ENOBUFS, errno.ENOMEM, errno.EINVAL))


class StreamSocket:
    """The calls of a connected stream socket, which never wait. Errors are translated."""

    __slots__ = ("_broken", "_socket")

    def __init__(self, socket: stdlib.socket) -> None:
        self._socket: Final = socket
        # the latest error that has broken the connection, 0 if none has: receives raise it in place of an end
        self._broken: int = 0

    def receive(self, size: int) -> bytes | None:
        """Receive up to `size` bytes, None if there are none. b"" once the peer has ended its side, never after the
        connection has broken: that raises BrokenResourceError, again and again."""
        try:
            data = self._socket.recv(size)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._translated(error) from error
        if not data and self._broken:
            raise broken_error(OSError(self._broken, os.strerror(self._broken)))
        return data

    def send(self, data: Buffer) -> int:
        """Send what the kernel takes, and return how many bytes it took."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._translated(error) from error

    def send_parts(self, parts: Sequence[Buffer]) -> int:
        """Do what `send` does with several buffers, one after another."""
        try:
            return self._socket.sendmsg(parts)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._translated(error) from error

    def shutdown_write(self) -> None:
        """End this side of the stream."""
        try:
            self._socket.shutdown(stdlib.SHUT_WR)
        except OSError as error:
            raise broken_error(error) from error

    def take_error(self) -> int:
        """Return the error that no call has reported yet, 0 if there is none. The kernel then forgets it."""
        code = self._socket.getsockopt(stdlib.SOL_SOCKET, stdlib.SO_ERROR)
        self._note(code)
        return code

    def _translated(self, error: OSError) -> BrokenResourceError | ClosedResourceError:
        self._note(error.errno or 0)
        return broken_error(error)

    def _note(self, code: int) -> None:
        if code and code not in _UNBROKEN:
            self._broken = code


def require_plain(socket: Any, whose: str) -> None:
    """Raise TypeError unless `socket` is a `socket.socket` without TLS. Other objects with its methods, such as the
    sockets of asyncio's transports and of trio, belong to an event loop; an SSLSocket reads in its own way. `whose`:
    the class that needs it, for the message."""
    if isinstance(socket, ssl.SSLSocket):
        raise TypeError(f"a {whose} needs a socket without TLS, not an SSLSocket: TlsConn speaks TLS through a Conn")
    if not isinstance(socket, stdlib.socket):
        raise TypeError(f"a {whose} needs a socket.socket, not {type(socket).__name__}")


def require_stream(socket: Any) -> None:
    """Raise TypeError or ValueError if no Conn can be made of `socket`; the error names what takes it."""
    require_plain(socket, "Conn")
    if socket.type != stdlib.SOCK_STREAM:
        raise ValueError(f"a Conn needs a SOCK_STREAM socket, not {socket.type!r}{_taken_by(socket)}")
    if _was_listened_on(socket):
        raise ValueError("a Conn needs a connected socket, and this one listens: use a Listener")


def require_listening(socket: Any) -> None:
    """Raise TypeError or ValueError if no Listener can be made of `socket`; the error names what takes it."""
    require_plain(socket, "Listener")
    if not listens(socket):
        raise ValueError(f"a Listener needs a SOCK_STREAM socket on which listen() was called{_taken_by(socket)}")


def require_datagrams(socket: Any) -> None:
    """Raise TypeError or ValueError if no PacketConn can be made of `socket`; the error names what takes it."""
    require_plain(socket, "PacketConn")
    if socket.type != stdlib.SOCK_DGRAM:
        raise ValueError(f"a PacketConn needs a SOCK_DGRAM socket, not {socket.type!r}{_taken_by(socket)}")


def listens(socket: stdlib.socket) -> bool:
    """Return True for a SOCK_STREAM socket on which listen() was called. macOS and OpenBSD cannot tell whether it was:
    there True for every SOCK_STREAM socket."""
    return socket.type == stdlib.SOCK_STREAM and _was_listened_on(socket) is not False


def _taken_by(socket: stdlib.socket) -> str:
    if socket.type == stdlib.SOCK_DGRAM:
        return ": use a PacketConn"
    if socket.type != stdlib.SOCK_STREAM:
        return ""
    return ": use a Listener" if _was_listened_on(socket) else ": use a Conn if it is connected"


def _was_listened_on(socket: stdlib.socket) -> bool | None:
    """Return True if listen() was called on a SOCK_STREAM socket, None if the kernel cannot tell."""
    try:
        return bool(socket.getsockopt(stdlib.SOL_SOCKET, stdlib.SO_ACCEPTCONN))
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
        return None


def set_options(socket: stdlib.socket) -> bool:
    """Set the TCP options of every `Conn`. False if the socket is not TCP: there are none to set."""
    is_tcp = socket.family in (stdlib.AF_INET, stdlib.AF_INET6)
    if is_tcp:
        # as trio does: small messages leave at once
        socket.setsockopt(stdlib.IPPROTO_TCP, stdlib.TCP_NODELAY, 1)
        if hasattr(stdlib, "TCP_NOTSENT_LOWAT"):
            socket.setsockopt(stdlib.IPPROTO_TCP, stdlib.TCP_NOTSENT_LOWAT, _UNSENT)
    return is_tcp


def reset_on_close(socket: stdlib.socket) -> None:
    """Let `close` discard unsent bytes and reset the connection. No effect on a unix socket, or once closed."""
    if socket.fileno() >= 0 and socket.family != stdlib.AF_UNIX:
        # the program may have put another file behind the descriptor
        with contextlib.suppress(OSError):
            socket.setsockopt(stdlib.SOL_SOCKET, stdlib.SO_LINGER, LINGER_ZERO)


def checked_size(max_bytes: int) -> int:
    """Return the `max_bytes` of a receive. TypeError or ValueError if it is not a positive int."""
    if not isinstance(max_bytes, int):
        raise TypeError(f"max_bytes must be an int, not {type(max_bytes).__name__}")
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, not {max_bytes}")
    return max_bytes


def longest_path(platform: str = sys.platform) -> int:
    """Return how many bytes the path of a unix socket may have: `sun_path` without its NUL."""
    # unix(7); unix(4) of macOS and the BSDs
    return 107 if platform == "linux" else 103


def join_host_port(host: str, port: int) -> str:
    """Return host and port as people and URLs write them: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_text(address: Any) -> str:
    """Return host and port, which an address over TCP or UDP begins with, as people write them."""
    return join_host_port(address[0], address[1])


def unsent(socket: stdlib.socket) -> int:
    """Return how many bytes of what was sent the kernel still holds: over TCP those that the peer's kernel has not
    acknowledged. 0 where the system cannot tell, and once the socket is closed."""
    try:
        if sys.platform == "linux":
            # SIOCOUTQ by another name (tcp(7), unix(7))
            return int(struct.unpack("i", ioctl(socket.fileno(), TIOCOUTQ, bytes(4)))[0])
        if sys.platform == "darwin":
            return socket.getsockopt(stdlib.SOL_SOCKET, _SO_NWRITE)
    except (OSError, ValueError):
        # a sandbox (gVisor) has Linux's sockets without it; a closed socket has no descriptor
        return 0
    return 0


def is_readable(socket: stdlib.socket) -> bool:
    """Return True if a receive would not block: the kernel has bytes, an end or an error, which all stay there."""
    return _is_ready(socket, select.POLLIN)


def is_writable(socket: stdlib.socket) -> bool:
    """Return True if the kernel's buffer for sending has room."""
    return _is_ready(socket, select.POLLOUT)


def _is_ready(socket: stdlib.socket, events: int) -> bool:
    poll = select.poll()
    poll.register(socket, events)
    return bool(poll.poll(0))
