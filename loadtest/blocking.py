"""Connections for programs that have an event loop of their own, as Locust has.

Facts      Locust replaces the sockets of the standard library by gevent's, which look as if they blocked and let other
           users run meanwhile. `select.epoll` is gone there; `select.poll` waits as its sockets do.
Hazard     The clients of `check`, `http` and `churn` have a loop for many connections each, and would stop all other
           users of a process.
Answer     A script of `check` is followed in a loop of its own, which polls (loop.py); all else goes over sockets that
           block. Nothing here knows gevent.
Cost       Times are as exact as the process is idle; nothing tells by how much they are wrong. `check` does.
"""

from __future__ import annotations

import ssl
from time import monotonic

import httptools

from . import dial
from .check.probe import Probe
from .check.script import Close, Script, Seen
from .loop import Loop
from .target import PATIENCE, Target
from .wire import Answers


class NoAnswerError(Exception):
    """The server ended the connection, or sent no HTTP, in place of a response."""


class Talk:
    """One keep-alive connection. OSError and NoAnswerError of its methods end it."""

    def __init__(self, target: Target, patience: float = PATIENCE) -> None:
        self._target = target
        self._patience = patience
        self._answers = Answers()
        self._socket = target.connect(patience)

    @property
    def keeps_alive(self) -> bool:
        """True if the last response allows another request."""
        return self._answers.keeps_alive

    def ask(self) -> tuple[int, int]:
        """Make a request; return the response's status and its bytes."""
        before, received = self._answers.count, 0
        self._socket.settimeout(self._patience)
        self._socket.sendall(self._target.get())
        while self._answers.count == before:
            data = self._socket.recv(65536)
            received += len(data)
            self._feed(data)
        return self._answers.status or 0, received

    def silent(self, seconds: float) -> Close | None:
        """Say nothing for so long; return how the server ended the connection meanwhile, None if it did not."""
        until = monotonic() + seconds
        close: Close = "fin"
        while (left := until - monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                if not self._socket.recv(65536):
                    return close
                close = "response"
            except TimeoutError:
                return None
            except OSError as error:
                return dial.how(error)
        return None

    def gone(self) -> bool:
        """Tell, without waiting, if the server has ended the connection, or sent what was not asked for."""
        self._socket.settimeout(0.0)
        try:
            self._socket.recv(65536)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            pass
        return True

    def close(self, *, reset: bool = False) -> None:
        """Close, with an RST if `reset`."""
        dial.close(self._socket, reset=reset)

    def _feed(self, data: bytes) -> None:
        try:
            self._answers.feed(data, 0.0)
        except httptools.HttpParserError as error:
            raise NoAnswerError("no HTTP") from error
        if not data:
            before = self._answers.count
            self._answers.end()
            if self._answers.count == before:
                raise NoAnswerError("closed without an answer")


def follow(script: Script, target: Target, limit: float) -> Seen:
    """Follow a script of `check` on one connection for `limit` seconds, and return what was seen.

    A script that neither reads nor sends shows no end.
    """
    loop, seen = Loop(), list[Seen]()
    probe = Probe(script, target, target.context(), loop, limit, seen.append)
    try:
        probe.start(monotonic())
        while not seen:
            loop.turn(monotonic() + limit)
    finally:
        probe.stop(monotonic())
        loop.close()
    return seen[0]
