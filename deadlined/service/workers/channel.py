"""A supervisor's end of the connection between it and a process that it has forked: frames that never block it.

Facts      The other process may hang, or be killed in the middle of a frame.
Hazard     A supervisor that waits for it replaces nobody and drains nobody.
Answer     What cannot be sent at once waits here, up to MOST_PENDING bytes; beyond that a frame is dropped. Half a
           frame is forgotten when the other end is gone.
Cost       Memory for what a process that hangs has not read.

Descriptors go with a frame: the kernel delivers them with its first bytes, in the order of the frames that have some.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket as stdlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from .frames import MOST_DESCRIPTORS, Frames, frame

# bytes; a hundred large answers
MOST_PENDING = 16 * 1024 * 1024

_AT_ONCE = 256 * 1024

# the other end is gone
_GONE = frozenset({errno.EPIPE, errno.ECONNRESET})

_log = logging.getLogger("deadlined.service")

Deliver = Callable[[bytes, bytes], None]


class Channel:
    """One end of a socket pair. `deliver(kind, payload)` is called for each frame that arrives, in `on_event` and
    `close`. The selector's data is `on_event`, which the owner of the selector must call."""

    def __init__(self, socket: stdlib.socket, selector: selectors.BaseSelector, deliver: Deliver) -> None:
        socket.setblocking(False)
        self._socket = socket
        self._selector = selector
        self._deliver = deliver
        self._frames = Frames()
        # what waits to be sent: bytes, and the descriptors that go with the first of them
        self._pending: deque[tuple[bytearray, list[int]]] = deque()
        # once False the other end is gone, or has sent something that is not a frame
        self._open = True
        selector.register(socket, selectors.EVENT_READ, self.on_event)

    def send(self, kind: bytes, payload: bytes = b"", descriptors: Sequence[int] = ()) -> None:
        """Send a frame as soon as the other end takes it. No effect if that is gone, or has too much to read already.

        `descriptors` must stay open until the channel is closed; at most MOST_DESCRIPTORS go with each byte."""
        if not self._open or sum(len(data) for data, _ in self._pending) >= MOST_PENDING:
            return
        data, rest = bytearray(frame(kind, payload)), list(descriptors)
        while len(rest) > MOST_DESCRIPTORS:
            self._pending.append((data[:1], rest[:MOST_DESCRIPTORS]))
            del data[:1], rest[:MOST_DESCRIPTORS]
        if rest or not self._pending:
            self._pending.append((bytearray(), rest))
        self._pending[-1][0].extend(data)
        self._flush()

    def on_event(self, mask: int) -> None:
        """Receive and send what is possible now."""
        if mask & selectors.EVENT_READ:
            self._receive()
        if mask & selectors.EVENT_WRITE and self._open:
            self._flush()

    def close(self) -> None:
        """Deliver what has arrived, and close the socket."""
        while self._open and self._receive():
            continue
        self._ended()
        self._socket.close()

    def release(self) -> None:
        """Close the socket only. For a forked child, which shares the selector's event queue and must not change it."""
        self._open = False
        self._socket.close()

    def _receive(self) -> bool:
        """Return False if nothing has arrived."""
        try:
            data = self._socket.recv(_AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        try:
            frames = self._frames.feed(data)
        except ValueError:
            frames, data = [], b""
        if not data:
            self._ended()
        for kind, payload in frames:
            self._deliver(kind, payload)
        return bool(data)

    def _flush(self) -> None:
        try:
            while self._pending:
                data, descriptors = self._pending[0]
                sent = stdlib.send_fds(self._socket, [data], descriptors) if descriptors else self._socket.send(data)
                descriptors.clear()
                del data[:sent]
                if data:
                    break
                self._pending.popleft()
        except (BlockingIOError, InterruptedError):
            # it goes on when the other end has read something
            pass
        except OSError as error:
            self._failed(error)
            return
        interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._pending else 0)
        self._selector.modify(self._socket, interest, self.on_event)

    def _failed(self, error: OSError) -> None:
        """Give the other end up. A process that is only cut off would wait for orders for ever: the end of the stream
        tells it."""
        if error.errno not in _GONE:
            _log.error("cannot send to a process of the service; closing its channel, so that it ends: %s", error)
        with suppress(OSError):
            self._socket.shutdown(stdlib.SHUT_RDWR)
        self._ended()

    def _ended(self) -> None:
        if self._open:
            self._open = False
            self._pending.clear()
            self._selector.unregister(self._socket)
