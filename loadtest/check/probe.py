"""One connection of an attack: what it sends and reads, and when and how the server ends it.

Facts      The end is a FIN or an RST, with or without a response before it. A FIN that follows unsent bytes does not
           arrive while the client's window is closed; but a socket that was closed answers any further byte by an RST.
Hazard     A server that closes a client which reads nothing would seem never to close it.
Answer     A script may send a byte every few milliseconds where the end cannot be seen otherwise; its twin that sends
           nothing tells whether the server had reset the connection by itself (scripts.py).
Cost       The time of such an end is exact to that interval.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP
from time import monotonic
from typing import Any

import httptools

from ..line import Line, how
from ..loop import Loop
from ..target import Target
from .scripts import Close, Script, Seen

# Seconds between a response and the end that it announces. A server that lets a close linger ends its own side at once;
# one that answers early and goes on waiting holds the connection, until it ends it for another reason.
ANNOUNCED = 0.2
# seconds for connect and handshake; then the probe is a failure, not a finding
OPENING = 10.0


# called with what was seen
Ended = Callable[[Seen], None]


class State(Enum):
    """The states of a probe, in their order."""

    OPENING = auto()  # connecting, and the handshake
    WAITING = auto()  # for the responses that the script wants first
    ATTACKING = auto()
    ENDED = auto()


class Probe(Line):
    """A connection that follows a script, in a loop. `ended` is called once, with what was seen.

    It is over after `limit` seconds of attack. `stop` ends it before.
    """

    def __init__(
        self, script: Script, target: Target, context: ssl.SSLContext | None, loop: Loop, limit: float, ended: Ended
    ) -> None:
        super().__init__(target, context if script.shake else None, loop)
        self.script = script
        self.state = State.OPENING
        self._limit = limit
        self._report = ended
        self._out = b""
        self._sent = self._gulped = self._before = 0
        # by how much the moment of the last event may be wrong, and that of the response with which the attack began
        self._error = self._late = 0.0
        self._full: float | None = None
        self._broken: Close | None = None  # how a write has failed
        self._ticks = 0
        self._began = monotonic()

    def start(self, now: float) -> None:
        """Connect. A failure is reported like an end."""
        self._began = monotonic()
        self.later(now + OPENING, partial(self.on_trouble, f"no connection within {OPENING:g} s"))
        self.connect(narrow=self.script.gulp is not None)

    @property
    def attacks(self) -> bool:
        """True while the part of the script runs that is measured."""
        return self.state is State.ATTACKING

    @property
    def _reads(self) -> bool:
        return self.script.gulp is None or self.state is State.WAITING

    def stop(self, now: float) -> None:
        """End the probe as still open."""
        if self.state is not State.ENDED:
            self._finish(None, max(0.0, now - self._began))

    # events

    def on_open(self, now: float) -> None:
        """Send the opening, and attack if nothing is awaited."""
        if self._context is not None:
            self._began = monotonic()
        self.state = State.WAITING
        self._send(self.script.opening)
        if not self.script.answers:
            self._attack()
        else:
            trouble = f"no answer to an honest request within {OPENING:g} s"
            self.later(now + OPENING, partial(self.on_trouble, trouble))
        self._watch_all()

    def on_events(self, mask: int, now: float, wrong: float) -> None:
        """Go on with what is sent; read, or see the end."""
        self._error = wrong
        if mask & EPOLLOUT:
            self._send(b"")
        over = mask & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)
        if self._reads and (over or mask & EPOLLIN):
            if end := self.read_end(now):
                self._finish(end, now - self._began)
        elif over:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._finish("rst" if code else "fin", now - self._began)

    def _attack(self) -> None:
        if self.script.since == "attack":
            self._began = monotonic()
        self.state = State.ATTACKING
        self._before = self._sent + len(self._out)
        if self.script.half_close:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        self._loop.at(self._began + self._limit, self.stop)
        self.later(self._began + self.script.interval, self._tick)

    def _tick(self, now: float) -> None:
        """Send the next piece, read the next gulp."""
        if self.script.gulp is not None:
            self._gulp(now)
            if self._broken and self.state is State.ATTACKING:
                self._finish(self._broken, now - self._began)  # where no event has told it
        if self.state is State.ATTACKING and self.script.piece and not self._out:
            self._send_piece(now)
        if self.state is State.ATTACKING:
            # by the schedule: what this process was too late for follows at once, because the rate decides
            self._ticks += 1
            self.later(self._began + (self._ticks + 1) * self.script.interval, self._tick)

    def _send_piece(self, now: float) -> None:
        if self._sent + len(self.script.piece) <= self.script.cap:
            self._send(self.script.piece)
        elif self._full is None:
            self._full = now - self._began

    def _gulp(self, now: float) -> None:
        """Read a little, or nothing, and acknowledge at once what has come."""
        with suppress(OSError):
            # a server's buffers are full as soon as they can be, and not after delayed acknowledgements
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if not self.script.gulp:
            return
        try:
            self._gulped += len(self._socket.recv(self.script.gulp))
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self._finish(how(error), now - self._began)

    # bytes

    def _send(self, data: bytes) -> None:
        """Send what can be sent at once; the rest follows when there is room."""
        self._out += data
        while self._out:
            try:
                sent = self._socket.send(self._out)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                break
            except OSError as error:
                # the end is read, so that a response before it is not lost; but an error is told once only
                self._out = b""
                self._broken = "rst" if self._broken == "rst" else how(error)
                break
            self._sent += sent
            self._out = self._out[sent:]
        self._watch_all()

    def on_data(self, data: bytes, now: float) -> None:
        """Take a part of an answer, and attack when those have come that are awaited."""
        upgraded = self.answers.upgraded
        with suppress(httptools.HttpParserError):  # the end tells; what was said is then unknown
            self.answers.feed(data, now)
        if self.script.pongs and self.answers.upgraded:
            self._send(pongs(data if upgraded else self.answers.rest))
        if self.state is State.WAITING and self.answers.count >= self.script.answers:
            self._late = self._error + monotonic() - now
            self._attack()

    # the end

    def _finish(self, close: Close | None, seconds: float) -> None:
        """Report the end; None: it is open still."""
        close = "rst" if self._broken == "rst" and close == "fin" else close
        # what happened while the process worked has the time at which it looked, perhaps before the attack began
        seconds = max(0.0, seconds)
        ended = close is not None
        status = None
        if self.state is State.WAITING and ended:
            if not self.answers.status:
                self.on_trouble("the server ended the connection before it answered an honest request", 0.0)
                return
            # it ended with the response that was awaited: the connection was not kept
            seconds = 0.0
        elif ended and (response := self._last_response(seconds)) is not None:
            close, status, seconds = "response", self.answers.status, response
        went = self._gulped if self.script.gulp else max(0, self._sent - self._before)
        self._close(
            seconds if ended else None, seconds, full=self._full, close=close or "none", status=status,
            error=max(self._error, self._late) if ended else 0.0, sent=self._sent, went=went,
        )  # fmt: skip

    def _last_response(self, seconds: float) -> float | None:
        """Return when the response began that announced the end; None if none did."""
        status, began = self.answers.status, self.answers.began - self._began
        if not status or began <= 0 or seconds - began > ANNOUNCED:
            return None
        # a client that makes requests gets responses, which announce nothing
        return None if status < 400 and self.script.role == "fed" else began

    def on_trouble(self, kind: str, now: float) -> None:
        """Report why the script cannot be followed."""
        self._close(None, 0.0, trouble=kind)

    def _close(self, seconds: float | None, watched: float, **more: Any) -> None:
        """Close, and tell what was seen; `more` are other fields of `Seen`."""
        self.state = State.ENDED
        # no TIME_WAIT: the next attack needs the port
        self.close(reset=True)
        self._report(Seen(self.script.attack, self.script.role, self.script.rate, seconds, watched, **more))

    def _watch_all(self) -> None:
        """Watch for the end, for room while there is something to send, and for what is to be read."""
        if self.state is not State.ENDED:
            self.watch(EPOLLRDHUP | (EPOLLOUT if self._out else 0) | (EPOLLIN if self._reads else 0))


def pongs(data: bytes) -> bytes:
    """Return the answers to the pings in a websocket's frames, which are short and come whole."""
    answers = b""
    while len(data) >= 2:
        length = data[1] & 0x7F
        if length > 125:
            break
        if data[0] == 0x89:  # a ping; a client's frame is masked, and a mask of zeros changes nothing
            answers += bytes([0x8A, 0x80 | length, 0, 0, 0, 0]) + data[2 : 2 + length]
        data = data[2 + length :]
    return answers
