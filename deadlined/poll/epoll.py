"""Linux's port.

Facts      Edge-triggered epoll reports the whole mask of a descriptor whenever any bit of it changes. EPOLLHUP and
           EPOLLERR are always reported. A peer's FIN is EPOLLIN|EPOLLRDHUP, its urgent data EPOLLPRI.
Hazard     Level-triggered registration needs a system call before and after each wait. A registration that outlives its
           descriptor delivers a duplicate's events under a number that is reused.
Answer     Each descriptor is registered once, for both directions, edge-triggered, and deregistered before it is
           closed.
Cost       Two epoll_ctl calls per connection, none per operation.
"""

from __future__ import annotations

import select
from typing import Final

from .port import ERROR, HANGUP, MAX_EVENTS, MAX_WAIT, READ, URGENT, WRITE

_INTEREST: Final = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLPRI | select.EPOLLET
_READABLE: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_WRITABLE: Final = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
_URGENT: Final = select.EPOLLPRI
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
    """Translate an epoll mask as Go does (netpoll_epoll.go)."""
    if mask == _ERROR:
        return READ | WRITE | ERROR | HANGUP
    readable = READ if mask & _READABLE else 0
    unusual = (HANGUP if mask & _ENDED else 0) | (URGENT if mask & _URGENT else 0)
    return readable | (WRITE if mask & _WRITABLE else 0) | unusual
