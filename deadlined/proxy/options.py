"""The timeouts and limits of a proxy towards its upstreams, with the reason of each default."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from ..http.arguments import NUMBER, require_types
from ..http.timeouts import check_limits
from ..value import Value

INF: Final = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyTimeouts(Value):
    """Seconds from the start of a phase to its deadline; `inf` is off, 0 passes at once. Raises ValueError for NaN or a
    negative number, TypeError for what is no number."""

    # from the beginning of a connection to an upstream until it is made, the look-up of its name included; Envoy's
    # connect_timeout
    upstream_connect: float = 5.0
    # from the end of the request until the head of the response is complete; nginx's proxy_read_timeout
    upstream_first_byte: float = 60.0
    # the longest silence of an upstream in the middle of a body: one that it sends, or one that it must take; nginx's
    # proxy_read_timeout and proxy_send_timeout. Only silence counts, because event streams have no bound
    upstream_idle: float = 60.0
    # how long a request may wait while each upstream has as many as it may have, or none is available; then it is
    # answered with 503. Shorter than people wait
    upstream_queue: float = 10.0
    # for how long an idle connection is kept for the next request, unless the upstream says how long it keeps it: less
    # than the 2 of gunicorn, the shortest default of common servers
    upstream_reuse: float = 1.5
    # from the choice of an upstream, or from the end of a request whose client is still sending it, until the head of
    # the response is complete; then a request that may be repeated is tried again; Envoy's per_try_timeout. Off,
    # because only the application knows a bound
    upstream_per_try: float = INF

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value >= 0:
                raise ValueError(f"{field.name} must be 0 or more, or inf for off, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLimits(Value):
    """Numbers; `inf` is off. Raises ValueError for NaN or less than 1, TypeError for what is no number."""

    # requests and tunnels at one upstream at the same time; more wait for `upstream_queue`. Off, because only the
    # application knows a bound
    upstream_connections: float = INF

    def __post_init__(self) -> None:
        check_limits(self)


for _kind, _allowed in ((ProxyTimeouts, "0 or more"), (ProxyLimits, "at least 1")):
    require_types(
        _kind, {field.name: (NUMBER, f"a number that is {_allowed}, or inf for off") for field in fields(_kind)}
    )
