"""The timeouts of an HTTP server, one for every phase, and its limits, with the reason of each default."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Final

from ..value import Value
from .arguments import NUMBER, require_types

INF: Final = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts(Value):
    """Seconds from the start of a phase to its deadline; `inf` is off. Rates are in bytes per second.

    A deadline bounds its phase as a whole: bytes that trickle in do not extend it, except by the stated rates. A rate
    of `inf` extends nothing. Raises ValueError for NaN, a negative number, or 0 as a rate or as `ws_ping`, which is a
    period, TypeError for what is no number.
    """

    # from accept until the TLS handshake is done; Kestrel's 10
    handshake: float = 10.0
    # from the start of a request (accept, the end of the TLS handshake, or its first byte on a used connection) until
    # its head is complete; enough for 16 KiB over the slowest links. Go's users set 2 to 60, Kestrel 30
    read_header: float = 10.0
    # from the start of a request until its body is complete; off, because body_* bounds uploads of any size
    read: float = INF
    # more of a body must have come by start + grace + received/rate. `start` is the end of the head, later by the time
    # in which the handler did not receive. Apache's mod_reqtimeout, body=20,MinRate=500
    body_grace: float = 20.0
    body_min_rate: float = 500.0
    # the peer must accept a send of `length` bytes by start + max(grace, length/rate), where `start` is when it had to
    # wait; and some byte in any minute, or in `grace` if that is longer. Kestrel's MinResponseDataRate, with twice
    # its grace, and nginx's send_timeout
    write_grace: float = 10.0
    write_min_rate: float = 240.0
    # from the end of the head until the response is sent; off, because streams are meant to last
    write: float = INF
    # from the end of a request until the first byte of the next; nginx's keepalive_timeout, above the 60 of common load
    # balancers
    idle: float = 75.0
    # from the end of the head until the handler has returned; off, because only the application knows a bound
    handler: float = INF
    # from when a request must wait for its turn, because `Limits.max_running` are handled, until it is answered with
    # 503. What waits longer than that is most often asked again, or not wanted any more
    request_queue: float = 5.0
    # from accept; responses after it say `Connection: close`. Off; useful where load is balanced by connection
    connection_age: float = INF
    # from the start of a shutdown until the connections that are left are reset; Kubernetes'
    # terminationGracePeriodSeconds
    drain: float = 30.0
    # from the last bytes of a websocket's peer until a ping asks whether it is still there; the 20 of `websockets` and
    # uvicorn, below the 30 to 60 after which proxies forget a silent connection
    ws_ping: float = 20.0
    # from that ping until any bytes must have come; their 20, too. As long again, while the peer takes what was sent
    # before the ping, at `write_min_rate`
    ws_pong: float = 20.0
    # from the server's close frame on a websocket until the peer's, or until it has left if the peer's came before;
    # half the 10 of `websockets`. As long again, while the peer takes what was sent before it, at `write_min_rate`
    ws_close: float = 5.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value >= 0 or (value == 0 and _is_positive(field.name)):
                raise ValueError(f"{field.name} must be {_allowed(field.name)}, not {value!r}")


def _is_positive(name: str) -> bool:
    return name.endswith("_rate") or name == "ws_ping"


def _allowed(name: str) -> str:
    return "greater than 0" if _is_positive(name) else "0 or more, or inf for off"


require_types(
    Timeouts, {field.name: (NUMBER, f"a number that is {_allowed(field.name)}") for field in fields(Timeouts)}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Value):
    """Sizes in bytes, and numbers; `inf` is off. Raises ValueError for NaN or less than 1, TypeError for what is no
    number."""

    # open connections; more wait in the kernel's queue, and those that have been idle longest are closed for them. Off,
    # because only the program knows how many descriptors it needs itself
    max_connections: float = INF
    # bytes of a request line and its header fields together; answered 431 or 414 beyond. For a chunked body
    # it also bounds the sum of all chunk extensions, and separately that of all trailer fields. The 16 KiB of h11 and
    # most servers (Go's 1 MiB is far too much, golang/go#79936)
    max_head: float = 16 * 1024
    # header fields of one request, and separately the trailer fields of its chunked body; of the order of Apache's
    # LimitRequestFields and Node's limit
    max_headers: float = 100
    # body bytes of one request, answered 413 beyond; off, because only the application knows a bound
    max_body: float = INF
    # requests of one connection; the response to the last one says `Connection: close`. Off
    max_requests: float = INF
    # requests that are handled at once, by all connections together; more wait for `request_queue`. Off, because only
    # the application knows a bound
    max_running: float = INF
    # requests that wait at most; more are answered with 503 at once. Each holds a connection and a task, some 20 KB
    max_waiting: float = 1000
    # bytes of a websocket's message, after it was inflated; closed with 1009 beyond. The 16 MiB of uvicorn
    max_message: float = 16 * 1024 * 1024
    # bytes of one frame of it
    max_frame: float = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        check_limits(self)


def check_limits(limits: Any) -> None:
    """Raise ValueError if a field of a dataclass of limits is NaN or less than 1."""
    for field in fields(limits):
        value = getattr(limits, field.name)
        if not value >= 1:
            raise ValueError(f"{field.name} must be at least 1, or inf for off, not {value!r}")


require_types(Limits, {field.name: (NUMBER, "a number that is at least 1, or inf for off") for field in fields(Limits)})
