"""One connection of a client in a loop: how it opens, how it reads, how it is closed.

Facts      A socket that does not block opens in steps: TCP, then TLS. Each step, and each read, may show its end.
Answer     Here is what every client's connection does. What it says, and what an answer or an end means, is for the
           class that derives from it.
"""

from __future__ import annotations

import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT, EPOLLRDHUP
from time import monotonic
from typing import Literal

import httptools

from . import dial
from .loop import Loop
from .target import Target
from .wire import Answers

READ = EPOLLIN | EPOLLRDHUP


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
        """Give up: it could not be opened, or has failed."""

    def on_data(self, data: bytes, now: float) -> None:
        """Take what was read. httptools.HttpParserError if it is no HTTP."""
        self.answers.feed(data, now)

    def connect(self, address: str = "", *, narrow: bool = False) -> None:
        """Begin to connect, from this address if one is given; `on_trouble` may be called at once.

        `narrow`: let the server's kernel buffer little for this client.
        """
        try:
            self._socket = dial.begin(self._target, address, narrow=narrow)
        except OSError as error:
            self.on_trouble(dial.trouble(error), monotonic())
        else:
            self.watch(EPOLLOUT)

    def watch(self, mask: int) -> None:
        """Let the loop watch for these events, in place of any before."""
        if mask != self._mask:
            self._mask = mask
            self._loop.watch(self._socket.fileno(), mask, self._on_events)

    def read(self, now: float) -> bool:
        """Take all that has come; True at the end of the connection. OSError if it has ended by an error."""
        with suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while data := self._socket.recv(65536):
                self.on_data(data, now)
            return True
        return False

    def read_end(self, now: float) -> Literal["", "fin", "rst"]:
        """Take all that has come, and tell how the connection has ended; "" if it has not."""
        try:
            return "fin" if self.read(now) else ""
        except OSError as error:
            return dial.how(error)

    def later(self, when: float, call: Callable[[float], object]) -> None:
        """Call this at `when`, in place of what was to be called before, unless it is closed by then."""
        self._next = call
        self._loop.at(when, lambda now: call(now) if self._next is call else None)

    def close(self, *, reset: bool = False) -> None:
        """Close it, if it has begun to open; with an RST, which leaves no port behind, if `reset`."""
        self._next = None
        if self._mask:
            self._mask = 0
            self._loop.forget(self._socket.fileno())
            dial.close(self._socket, reset=reset)

    def _on_events(self, mask: int, now: float, wrong: float) -> None:
        try:
            if self._is_open:
                self.on_events(mask, now, wrong)
            else:
                self._proceed(now)
        except httptools.HttpParserError:
            self.on_trouble("no HTTP", now)
        except OSError as error:
            self.on_trouble(dial.trouble(error), now)

    def _proceed(self, now: float) -> None:
        self._socket, wanted = dial.proceed(self._socket, self._target, self._context)
        self.watch(wanted or READ)
        if not wanted:
            self._is_open = True
            self.on_open(now)
