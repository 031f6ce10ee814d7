"""A guard in front of any HTTP server: a reverse proxy with a deadline on every wait, towards clients and upstreams."""

from __future__ import annotations

from .address import Address
from .errors import Failure
from .options import ProxyLimits, ProxyTimeouts
from .proxy import Proxy, ProxyStatistics
from .upstream import UpstreamStatistics

__all__ = ["Address", "Failure", "Proxy", "ProxyLimits", "ProxyStatistics", "ProxyTimeouts", "UpstreamStatistics"]
