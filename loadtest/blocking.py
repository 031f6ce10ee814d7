"""Connections over blocking sockets, for programs that have an event loop of their own, as Locust has.

Facts      Locust replaces the sockets of the standard library by gevent's, which look as if they blocked and let other
           users run meanwhile. `select.epoll` is gone there.
Hazard     The clients of `check`, `http` and `churn` have an epoll each, and would stop all other users of a process.
Answer     The same scripts and the same bytes, over sockets that block. Nothing here knows gevent.
Cost       Times are as exact as the process is idle; nothing tells by how much they are wrong. `check` does.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from time import monotonic, sleep

import httptools

from . import dial
from .check.script import Close, Script, Seen
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
                return _how(error)
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
    began = monotonic()
    try:
        endpoint = dial.blocking(target, PATIENCE, tls=script.shake)
    except OSError as error:
        return Seen(script.attack, script.role, script.rate, None, 0.0, trouble=f"no connection: {error}")
    followed = _Followed(script, endpoint, began)
    try:
        return followed.run(limit)
    finally:
        dial.close(endpoint, reset=True)


class _Followed:
    """A script that is being followed."""

    def __init__(self, script: Script, endpoint: socket.socket, began: float) -> None:
        self._script = script
        self._socket = endpoint
        self._began = began
        self._answers = Answers()
        self._sent = self._received = 0

    def run(self, limit: float) -> Seen:
        """Send the opening, wait for the responses, and attack for `limit` seconds."""
        script = self._script
        try:
            self._send(script.opening)
            while self._answers.count < script.answers:
                if not self._read():
                    raise ConnectionError("the server ended the connection before it answered an honest request")
            if script.since == "attack":
                self._began = monotonic()
            self._send(script.then)
            if script.half_close:
                self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            return Seen(script.attack, script.role, script.rate, None, 0.0, trouble=str(error))
        try:
            ended: Close | None = "fin" if self._attack(self._began + limit) else None
        except OSError as error:
            ended = _how(error)
        return self._seen(ended, monotonic() - self._began)

    def _attack(self, until: float) -> bool:
        """Drip, and read as the script says; True at the end of the connection."""
        script = self._script
        tick = monotonic() + script.interval
        while (now := monotonic()) < until:
            if now >= tick:
                tick = now + script.interval
                if script.piece and self._sent + len(script.piece) <= script.cap:
                    self._send(script.piece)
                if script.gulp and not self._read(script.gulp):
                    return True
            pause = max(0.001, min(tick, until) - monotonic())
            if script.gulp is not None:
                sleep(pause)
            elif self._ends_within(pause):
                return True
        return False

    def _ends_within(self, pause: float) -> bool:
        self._socket.settimeout(pause)
        try:
            return not self._read()
        except TimeoutError:
            return False

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(PATIENCE)
        self._socket.sendall(data)
        self._sent += len(data)

    def _read(self, most: int = 65536) -> bool:
        """Read once; False at the end."""
        data = self._socket.recv(most)
        self._received += len(data)
        with suppress(httptools.HttpParserError):  # the end tells
            self._answers.feed(data, monotonic())
        return bool(data)

    def _seen(self, close: Close | None, seconds: float) -> Seen:
        script, status = self._script, None
        if close is not None and self._answers.status is not None and self._answers.began > self._began:
            close, status = "response", self._answers.status
        return Seen(
            script.attack, script.role, script.rate, None if close is None else seconds, seconds,
            close=close or "none", status=status, sent=self._sent, went=self._received,
        )  # fmt: skip


def _how(error: OSError) -> Close:
    return "rst" if dial.was_reset(error) else "fin"
