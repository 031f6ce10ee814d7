"""The parts of `ServeConfig`, whose own fields are settings: deadlines and limits, and their help."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...http import Limits, Timeouts
from ...proxy import ProxyLimits, ProxyTimeouts
from .groups import COMMANDS, DEADLINES, LIMITS, PROXY, RUN, UPSTREAM


class Part(NamedTuple):
    """The class of a field of `ServeConfig` whose own fields are settings, their group, and their commands."""

    owner: type
    group: str
    commands: tuple[str, ...]


PARTS: Final = {
    "timeouts": Part(Timeouts, DEADLINES, COMMANDS),
    "limits": Part(Limits, LIMITS, COMMANDS),
    "proxy_timeouts": Part(ProxyTimeouts, UPSTREAM, (PROXY, RUN)),
    "proxy_limits": Part(ProxyLimits, UPSTREAM, (PROXY, RUN)),
}

# the settings of PARTS that are of no use without an application: a proxy does not read websockets, and has a queue for
# each upstream
OF_APPLICATIONS: Final = frozenset(
    {
        *("ws_ping", "ws_pong", "ws_close", "max_message", "max_frame"),
        *("request_queue", "max_running", "max_waiting"),
    }
)

# of each field
HELP = {
    "handshake": "Time for the TLS handshake, from accept.",
    "read_header": "Time for a request's head, from accept or its first byte; cuts slowloris.",
    "read": "Time for a request's head and body.",
    "body_grace": "Time for a body, extended by received bytes / --body-min-rate.",
    "body_min_rate": "Bytes per second that extend --body-grace.",
    "write_grace": "Time for the client to take a send, or length / --write-min-rate if that is longer. A client that "
    "takes no byte for a minute, or for this time if that is longer, is reset in any case.",
    "write_min_rate": "Bytes per second at which a client must take a long send.",
    "write": "Time for the whole response, from the end of the request's head.",
    "idle": "Time that a connection may wait for the next request (it closes a second later than its client is told), "
    "or be silent after an upgrade and with deadlined proxy --tcp.",
    "handler": "Time for the application, or for what is guarded; then it is cancelled and the response is 504.",
    "request_queue": "Time that a request may wait while --max-running are handled; then the response is 503.",
    "connection_age": "Age after which the next response closes a connection, and at which a websocket or tunnel ends "
    "(varied by 10 %).",
    "drain": "Time for open requests after SIGTERM; then they are cut.",
    "ws_ping": "Silence of a websocket's client after which it is sent a ping.",
    "ws_pong": "Time for the answer to a ping; then the websocket is closed with 1011.",
    "ws_close": "Time for a websocket's client to answer a close.",
    "upstream_connect": "Time to connect to an upstream, the look-up of its name included.",
    "upstream_first_byte": "Time for an upstream to answer, from the end of the request to the end of the head.",
    "upstream_idle": "Longest silence of an upstream in the middle of a body, or while it must take one.",
    "upstream_queue": "Time that a request may wait for an upstream that can take it; then the response is 503.",
    "upstream_reuse": "Time that an idle connection is kept, unless the upstream says how long it keeps it itself.",
    "upstream_per_try": "Time for one try; then a request that may be repeated is tried again.",
    "upstream_connections": "Requests that each upstream has at most at once from each worker process; others wait.",
    "max_connections": "Open connections of clients, in each process; more wait, and idle ones are closed for them. "
    "Off is as many as the limit of open files allows, less a reserve; deadlined_connections_max tells it.",
    "max_head": "Bytes of a request's head; more is answered with 431, or 414 if the first line alone is longer.",
    "max_headers": "Header fields of a request; more are answered with 431.",
    "max_body": "Bytes of a request's body; more is answered with 413.",
    "max_requests": "Requests after which a connection is closed.",
    "max_running": "Requests that the application handles at once, in each process; others wait.",
    "max_waiting": "Requests that wait at most, in each process; more are answered with 503 at once.",
    "max_message": "Bytes of a websocket's message, inflated; more close it with 1009.",
    "max_frame": "Bytes of one frame of such a message.",
}
