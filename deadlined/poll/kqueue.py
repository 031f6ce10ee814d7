"""The port for macOS and the BSDs, after kqueue(2) and Go's netpoll_kqueue.go.

Facts      There is one filter per direction; EV_CLEAR makes it edge-triggered. EV_EOF on the read filter is the peer's
           FIN, and on some systems the only sign for a pipe's writer that the reader has closed. An event queue is not
           inherited across fork.
Hazard     Closing a descriptor removes its filters, so a later EV_DELETE fails. Urgent data is not reported.
Answer     Both filters are added in one call and deleted in one call, before the descriptor is closed. Urgent data may
           follow any bytes.
Cost       Two system calls per connection, none per operation. Tested with a fake of `select.kqueue` that checks the
           calls; it has not run on such a machine yet.
"""

from __future__ import annotations

import select
from typing import Any

from .port import ERROR, HANGUP, MAX_EVENTS, MAX_WAIT, READ, URGENT, WRITE

# typed as Any because the module has no kqueue on the platform where this is checked
_select: Any = select


class KqueuePort:
    """`select.kqueue`, with EV_CLEAR."""

    name: str = "kqueue"

    def __init__(self) -> None:
        self._kqueue: Any = _select.kqueue()

    def register(self, fd: int) -> None:
        self._change(fd, _select.KQ_EV_ADD | _select.KQ_EV_CLEAR)

    def deregister(self, fd: int) -> None:
        self._change(fd, _select.KQ_EV_DELETE)

    def wait(self, timeout: float) -> list[tuple[int, int]]:
        bounded = None if timeout == float("inf") else min(max(timeout, 0.0), MAX_WAIT)
        events = self._kqueue.control(None, MAX_EVENTS, bounded)
        return [(event.ident, _translate(event)) for event in events]

    def fileno(self) -> int:
        return int(self._kqueue.fileno())

    def close(self) -> None:
        self._kqueue.close()

    def _change(self, fd: int, flags: int) -> None:
        filters = (_select.KQ_FILTER_READ, _select.KQ_FILTER_WRITE)
        self._kqueue.control([_select.kevent(fd, filter=filter_, flags=flags) for filter_ in filters], 0, 0)


def _translate(event: Any) -> int:
    """Translate a kevent as Go does."""
    if event.flags & _select.KQ_EV_ERROR:
        return READ | WRITE | ERROR | HANGUP
    if event.filter == _select.KQ_FILTER_WRITE:
        return WRITE
    return READ | URGENT | (WRITE | HANGUP if event.flags & _select.KQ_EV_EOF else 0)
