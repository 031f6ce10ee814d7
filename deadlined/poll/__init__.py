"""Polling of descriptors under deadlines: halves, a poller, and ports to the kernels. It needs no event loop, only the
standard library's `select`."""

from __future__ import annotations

import select

from .clock import Clock
from .desc import CLOSED, EXPIRED, NOT_POLLABLE, OK, PARKED, Half, PollDesc
from .fake import FakePort
from .poller import Poller, PollerStatistics
from .port import ERROR, HANGUP, READ, URGENT, WRITE, Port


def open_port() -> Port:
    """Open this machine's port: epoll on Linux, kqueue on macOS and the BSDs. OSError on other systems."""
    if hasattr(select, "epoll"):
        from .epoll import EpollPort

        return EpollPort()
    if hasattr(select, "kqueue"):
        from .kqueue import KqueuePort

        return KqueuePort()
    raise OSError("deadlined needs epoll or kqueue: Linux, macOS or a BSD")


__all__ = [
    "CLOSED",
    "ERROR",
    "EXPIRED",
    "HANGUP",
    "NOT_POLLABLE",
    "OK",
    "PARKED",
    "READ",
    "URGENT",
    "WRITE",
    "Clock",
    "FakePort",
    "Half",
    "PollDesc",
    "Poller",
    "PollerStatistics",
    "Port",
    "open_port",
]
