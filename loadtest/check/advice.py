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
    "waitress": {"idle": "channel_timeout", "silent": "channel_timeout", "stalled-body": "channel_timeout"},
    "cheroot": {"": "has one timeout for every wait (server.timeout)"},
}


def known(server: str, fields: Mapping[str, str]) -> str:
    """Return the name of the server that an honest response shows, as this module knows it; "" if it does not.

    deadlined sends no Server field, and its Keep-Alive field with a timeout and nothing else.
    """
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
