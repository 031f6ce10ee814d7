"""What is allowed: the timeouts of every phase and the limits of size and number, with the reason of each default."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

INF: Final = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds from the start of a phase to its deadline; `inf` is off. Rates are in bytes per second.

    Deadlines are totals: bytes that trickle in extend nothing, except by the stated rates. ValueError for NaN or a
    negative number, and for a rate of 0 (a rate of `inf` extends nothing).
    """

    # accept until the TLS handshake is done; Kestrel's 10
    handshake: float = 10.0
    # until the head is complete: enough for 16 KiB over the slowest of links; Go's users set 2 to 60, Kestrel 30
    read_header: float = 10.0
    # until head and body are complete; off, because uploads take as long as they take (body_* bounds them)
    read: float = INF
    # a body must be there by start + grace + received/rate: Apache's mod_reqtimeout, body=20,MinRate=500
    body_grace: float = 20.0
    body_min_rate: float = 500.0
    # a send must be taken by start + max(grace, length/rate): Kestrel's MinResponseDataRate, with twice its grace
    write_grace: float = 10.0
    write_min_rate: float = 240.0
    # from the end of the head until the response is out; off, because streams are meant to last
    write: float = INF
    # between requests; nginx's keepalive_timeout, above the 60 of common load balancers
    idle: float = 75.0
    # from the end of the head until the application has returned; off, only the application knows
    handler: float = INF
    # from accept until the next response says `Connection: close`; off, for those who balance load by connection
    connection_age: float = INF
    # from the begin of a shutdown until what is left is cut; Kubernetes' terminationGracePeriodSeconds
    drain: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = "greater than 0" if field.name.endswith("_rate") else "0 or more"
            if not value >= 0 or (value == 0 and field.name.endswith("_rate")):
                raise ValueError(f"{field.name} must be {least}, or inf for off, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes and numbers; `inf` is off. ValueError for what is not at least 1."""

    # request line and header fields together; h11's and most servers' 16 KiB (Go's 1 MiB is far too much,
    # golang/go#79936)
    max_head: float = 16 * 1024
    # header fields; Apache's LimitRequestFields and Node's are of this order
    max_headers: float = 100
    # body bytes of one request, answered 413 beyond; off, the application knows what it can take
    max_body: float = INF
    # requests of one connection, then `Connection: close`; off
    max_requests: float = INF

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value >= 1:
                raise ValueError(f"{field.name} must be at least 1, or inf for off, not {value!r}")
