"""Linux's port.

Facts      Edge-triggered epoll reports a descriptor's whole mask whenever any of it changes. EPOLLHUP and EPOLLERR come
           unasked. A peer's FIN is EPOLLIN|EPOLLRDHUP, its urgent data EPOLLPRI.
Hazard     Level-triggered registration needs a system call before and after each wait; a registration that outlives its
           descriptor delivers events of a duplicate under a number that now means something else.
Answer     Each descriptor is registered once, for both directions, edge-triggered; it is deregistered before it is
           closed.
Cost       One epoll_ctl per connection at each end of its life, none per operation.
"""

from __future__ import annotations

import select
from typing import Final

from .port import ERROR, HANGUP, MAX_EVENTS, MAX_WAIT, READ, URGENT, WRITE

_INTEREST: Final = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLPRI | select.EPOLLET
_READABLE: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_WRITABLE: Final = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
_ERROR: Final = select.EPOLLERR
_ENDED: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class EpollPort:
    """`select.epoll`, edge-triggered."""

    name: str = "epoll"

    def __init__(self) -> None:
        self._epoll = select.epoll()

    def register(self, fd: int) -> None:
        self._epoll.register(fd, _INTEREST)

    def deregister(self, fd: int) -> None:
        self._epoll.unregister(fd)

    def wait(self, timeout: float) -> list[tuple[int, int]]:
        bounded = -1 if timeout == float("inf") else min(max(timeout, 0.0), MAX_WAIT)
        events = self._epoll.poll(bounded, MAX_EVENTS)
        return [(fd, _translate(mask)) for fd, mask in events]

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        self._epoll.close()


def _translate(mask: int) -> int:
    """Go's reading of an epoll mask (netpoll_epoll.go)."""
    if mask == _ERROR:
        return READ | WRITE | ERROR | HANGUP
    readable = READ if mask & _READABLE else 0
    unusual = (HANGUP if mask & _ENDED else 0) | (URGENT if mask & select.EPOLLPRI else 0)
    return readable | (WRITE if mask & _WRITABLE else 0) | unusual
