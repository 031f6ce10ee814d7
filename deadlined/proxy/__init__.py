"""A guard in front of any HTTP or TCP server: a reverse proxy with a deadline on every wait, on both sides."""

from __future__ import annotations

from .address import Address
from .base import BaseProxy, ProxyStatistics
from .errors import Failure
from .options import ProxyLimits, ProxyTimeouts
from .proxy import Proxy
from .raw import RawProxy
from .upstream import UpstreamStatistics

__all__ = [
    "Address",
    "BaseProxy",
    "Failure",
    "Proxy",
    "ProxyLimits",
    "ProxyStatistics",
    "ProxyTimeouts",
    "RawProxy",
    "UpstreamStatistics",
]
