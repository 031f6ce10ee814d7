"""Connections of the load test's clients: how they open, where they come from, how they read, how they end.

Facts      A kernel has about 28,000 ports for each pair of addresses, and keeps those of closed connections for a
           minute. All of 127.0.0.0/8 is this machine. A socket that does not block opens in steps: TCP, then TLS. Each
           step, and each read, may show its end.
Answer     Every thousand connections have a source address of their own. Line is what every client's connection in a
           loop does: it takes the next step whenever the kernel says that it can be taken. What it says, and what an
           answer or an end means, is for the class that derives from it.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT, EPOLLRDHUP
from time import monotonic
from typing import Literal

import httptools

from .loop import Loop
from .target import Target
from .wire import Answers

# connections from one source address
PER_ADDRESS = 1000
_ADDRESSES = 250

_LINGER_ZERO = struct.pack("ii", 1, 0)
_READ = EPOLLIN | EPOLLRDHUP
# reads of 64 KiB, which take a whole record of TLS, before the loop goes on: a server may send faster than this reads
_READS = 16


def source(number: int) -> str:
    """Return the address from which connection `number` comes, from 0 on."""
    place = number // PER_ADDRESS
    return f"127.{1 + place // _ADDRESSES}.{place % _ADDRESSES}.1"


def _require(code: int, good: tuple[int, ...]) -> None:
    if code not in good:
        raise OSError(code, os.strerror(code))


def trouble(error: OSError) -> str:
    """Return a short name of an error, the same for all of its kind."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    return os.strerror(error.errno) if error.errno else str(error)


def how(error: OSError) -> Literal["fin", "rst"]:
    """Tell if the peer has ended the connection by an RST. With EPIPE a FIN had come before it."""
    return "rst" if error.errno == errno.ECONNRESET and not isinstance(error, ssl.SSLError) else "fin"


def close(endpoint: socket.socket, *, reset: bool = False) -> None:
    """Close; with an RST, which leaves no port behind, if `reset`."""
    with suppress(OSError):
        if reset:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    endpoint.close()


class Line(ABC):
    """A connection. `answers`: what it has read. The methods `on_...` are called by the loop.

    `wrong`: by how many seconds a moment may have been earlier (loop.py).
    """

    def __init__(self, target: Target, context: ssl.SSLContext | None, loop: Loop) -> None:
        self.answers = Answers()
        self._target = target
        self._context = context
        self._loop = loop
        self._socket: socket.socket
        self._mask = 0  # what the loop watches; 0 while there is no socket
        # what will be called at a time: the timer of anything before is harmless
        self._next: Callable[[float], object] | None = None
        self._is_open = False

    @abstractmethod
    def on_open(self, now: float) -> None:
        """Speak: it is connected, and past the handshake."""

    @abstractmethod
    def on_events(self, mask: int, now: float, wrong: float) -> None:
        """Read, or write: something has happened after that. What it raises of HTTP and of sockets is trouble."""

    @abstractmethod
    def on_trouble(self, kind: str, now: float) -> None:
        """Close it: it could not be opened, or has failed."""

    def on_data(self, data: bytes, now: float) -> None:
        """Take what was read. httptools.HttpParserError if it is no HTTP."""
        self.answers.feed(data, now)

    def connect(self, address: str = "", *, narrow: bool = False) -> None:
        """Begin to connect, from this address if one is given; `on_trouble` may be called at once.

        `narrow`: so small a segment and receive buffer that a server's kernel buffers less than 100 kB for it, and not
        megabytes. It gives more to a peer that has acknowledged many segments, as small responses are.
        """
        try:
            endpoint = self._socket = socket.socket(self._target.family, socket.SOCK_STREAM)
            self.watch(EPOLLOUT)  # first, so that `close` frees the socket if the rest fails
            endpoint.setblocking(False)
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if narrow:
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel's least
                endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
                endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            if address:
                # the port is chosen when it connects: it must be free for that pair of addresses only
                endpoint.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
                endpoint.bind((address, 0))
            _require(endpoint.connect_ex(self._target.address), (0, errno.EINPROGRESS))
        except OSError as error:
            self.on_trouble(trouble(error), monotonic())

    def watch(self, mask: int) -> None:
        """Let the loop watch for these events, in place of any before."""
        if mask != self._mask:
            self._mask = mask
            self._loop.watch(self._socket.fileno(), mask, self._on_events)

    def read(self, now: float) -> bool:
        """Take what has come, as much as fits a turn; True at the end of the connection. OSError if it has ended by an
        error."""
        with suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            for _ in range(_READS):
                if not (data := self._socket.recv(65536)):
                    return True
                self.on_data(data, now)
        return False

    def read_end(self, now: float) -> Literal["", "fin", "rst"]:
        """Take what has come, and tell how the connection has ended; "" if it has not, or if that is still to read."""
        try:
            return "fin" if self.read(now) else ""
        except OSError as error:
            return how(error)

    def later(self, when: float, call: Callable[[float], object]) -> None:
        """Call this at `when`, in place of what was to be called before, unless it is closed by then."""
        self._next = call
        self._loop.at(when, lambda now: call(now) if self._next is call else None)

    def close(self, *, reset: bool = False) -> None:
        """Close it, if it has begun to open; with an RST, which leaves no port behind, if `reset`."""
        self._next = None
        if self._mask:
            self._forget()
            close(self._socket, reset=reset)

    def _forget(self) -> None:
        self._mask = 0
        self._loop.forget(self._socket.fileno())

    def _on_events(self, mask: int, now: float, wrong: float) -> None:
        try:
            if self._is_open:
                self.on_events(mask, now, wrong)
            else:
                self._proceed(now)
        except httptools.HttpParserError:
            self.on_trouble("no HTTP", now)
        except OSError as error:
            self.on_trouble(trouble(error), now)

    def _proceed(self, now: float) -> None:
        """Take the next step to an open connection, with TLS if there is a context."""
        _require(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), (0,))
        if self._context is not None:
            if not isinstance(self._socket, ssl.SSLSocket):
                # if that fails it closes the descriptor, which the next connection may get
                self._forget()
                self._socket = self._context.wrap_socket(
                    self._socket, server_hostname=self._target.host, do_handshake_on_connect=False
                )
                self.watch(EPOLLOUT)
            try:
                self._socket.do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                self.watch(EPOLLIN if isinstance(error, ssl.SSLWantReadError) else EPOLLOUT)
                return
        self.watch(_READ)
        self._is_open = True
        self.on_open(now)
