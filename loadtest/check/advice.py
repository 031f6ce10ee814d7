"""What to change, for servers that are known by their Server field or by other signs of their responses."""

from __future__ import annotations

from collections.abc import Mapping

from .attacks import Attack

GUARD = "has no such option; put a guard in front (a proxy that has this deadline)"
CROWDED = "limit connections per address in front, or add worker processes: honest clients wait"

# by the beginning of the Server field: the options, by attack. "" is for what is not named.
_OPTIONS: dict[str, dict[str, str]] = {
    "uvicorn": {
        "idle": "--timeout-keep-alive",
        "websocket-silent": "--ws-ping-interval, --ws-ping-timeout",
        "connection-flood": "--limit-concurrency",
    },
    "hypercorn": {
        "idle": "keep_alive_timeout",
        "silent": "read_timeout",
        "slow-header": "read_timeout, which is an idle timeout: it does not end what drips",
        "stalled-body": "read_timeout",
        "websocket-silent": "websocket_ping_interval",
        "handshake-flood": "ssl_handshake_timeout",
    },
    "deadlined": {
        "silent": "--read-header (--handshake before the handshake)",
        "tls-silent": "--read-header",
        "slow-header": "--read-header",
        "endless-header": "--read-header, --max-head",
        "slow-body": "--body-grace, --body-min-rate, --read",
        "stalled-body": "--body-grace, --body-min-rate",
        "slow-read": "--write-grace, --write-min-rate, --write",
        "idle": "--idle",
        "pipelined": "--read-header",
    },
    "nginx": {
        "silent": "client_header_timeout",
        "slow-header": "client_header_timeout",
        "endless-header": "client_header_timeout, large_client_header_buffers",
        "slow-body": "client_body_timeout, which is between two reads: it does not end what drips",
        "stalled-body": "client_body_timeout",
        "slow-read": "send_timeout, reset_timedout_connection",
        "idle": "keepalive_timeout",
        "pipelined": "client_header_timeout",
        "connection-flood": "limit_conn, limit_req",
    },
    "apache": {
        "silent": "RequestReadTimeout header= (mod_reqtimeout), Timeout",
        "slow-header": "RequestReadTimeout header=20-40,MinRate=500",
        "endless-header": "RequestReadTimeout, LimitRequestFields",
        "slow-body": "RequestReadTimeout body=20,MinRate=500",
        "stalled-body": "RequestReadTimeout body=",
        "slow-read": "Timeout",
        "idle": "KeepAliveTimeout",
        "pipelined": "RequestReadTimeout header=",
    },
    "gunicorn": {
        "idle": "--keep-alive",
        "": "has no such option for this kind of worker; its documentation asks for nginx in front",
    },
    "caddy": {
        "silent": "servers { timeouts { read_header } }",
        "slow-header": "servers { timeouts { read_header } }",
        "slow-body": "servers { timeouts { read_body } }",
        "stalled-body": "servers { timeouts { read_body } }",
        "slow-read": "servers { timeouts { write } }",
        "idle": "servers { timeouts { idle } }",
    },
    "kestrel": {
        "silent": "Limits.RequestHeadersTimeout, Limits.KeepAliveTimeout",
        "slow-header": "Limits.RequestHeadersTimeout",
        "slow-body": "Limits.MinRequestBodyDataRate",
        "stalled-body": "Limits.MinRequestBodyDataRate",
        "slow-read": "Limits.MinResponseDataRate",
        "idle": "Limits.KeepAliveTimeout",
    },
    # its one timeout runs while a head is awaited, so that it also ends what is idle; not before the first byte
    "granian": {
        "slow-header": "--http1-header-read-timeout (milliseconds)",
        "endless-header": "--http1-header-read-timeout (milliseconds)",
        "pipelined": "--http1-header-read-timeout (milliseconds)",
        "idle": "--http1-header-read-timeout (milliseconds), which also ends what is idle",
        "": "has no such option beside --http1-header-read-timeout; put a guard in front that has this deadline",
    },
    # the 60 seconds are Twisted's; --http-timeout waits for the application, not for the client
    "daphne": {
        "websocket-silent": "--ping-interval, --ping-timeout",
        "": "has no such option: it waits 60 seconds between two reads or writes; put a guard in front",
    },
    "fastpysgi": {
        "silent": "fastpysgi.server.read_req_timeout (milliseconds, off by default)",
        "slow-header": "fastpysgi.server.curr_req_timeout (milliseconds, off by default)",
        "endless-header": "fastpysgi.server.curr_req_timeout, max_headers_num",
        "slow-body": "fastpysgi.server.curr_req_timeout (milliseconds, off by default), max_content_length",
        "stalled-body": "fastpysgi.server.read_req_timeout (milliseconds, off by default)",
        "idle": "fastpysgi.server.next_req_timeout (milliseconds, off by default)",
        "pipelined": "fastpysgi.server.next_req_timeout, read_req_timeout (milliseconds, off by default)",
    },
    "haproxy": {
        "silent": "timeout http-request",
        "tls-silent": "timeout http-request",
        "slow-header": "timeout http-request",
        "endless-header": "timeout http-request",
        "pipelined": "timeout http-request",
        "slow-body": "option http-buffer-request, with which timeout http-request also bounds the part of a body that "
        "fits its buffer (tune.bufsize); beyond that only timeout client, which does not end what drips",
        "stalled-body": "timeout client; option http-buffer-request with timeout http-request",
        "slow-read": "timeout client, which is between two pieces: it does not end what reads slowly",
        "idle": "timeout http-keep-alive",
        "websocket-silent": "timeout tunnel",
        "connection-flood": "maxconn; a stick-table with conn_cur or conn_rate, and tcp-request connection reject",
    },
    "waitress": {"idle": "channel_timeout", "silent": "channel_timeout", "stalled-body": "channel_timeout"},
    "cheroot": {"": "has one timeout for every wait (server.timeout)"},
}


# what HAProxy, which names itself nowhere, answers to what is no HTTP
_HAPROXY = b"<h1>400 Bad request</h1>\nYour browser sent an invalid request.\n"


def known(server: str, fields: Mapping[str, str], refusal: bytes = b"") -> str:
    """Return the name of the server that an honest response shows, as this module knows it; "" if it does not.

    deadlined sends no Server field, and its Keep-Alive field with a timeout and nothing else. `refusal`: what was
    answered to what is no HTTP; it shows a proxy in front, whose responses name the server behind it.
    """
    if _HAPROXY in refusal:
        return "haproxy"
    name = server.lower()
    for prefix in _OPTIONS:
        if name.startswith((prefix, f"{prefix}/")) or (prefix == "hypercorn" and name.startswith("hypercorn-")):
            return prefix
    keep_alive = fields.get("keep-alive", "")
    if not name and keep_alive.startswith("timeout=") and "," not in keep_alive and "connection" not in fields:
        return "deadlined"
    return ""


def advice(name: str, attack: Attack) -> str:
    """Return what a user of this server can set against an attack; what to look for if the server is not known."""
    if not name:
        return f"look for {attack.setting}, or put a guard in front that has it"
    options = _OPTIONS[name]
    option = options.get(attack.name, options.get("", GUARD))
    return f"{name} {option}" if option.startswith("has ") else f"{name}: {option}"
