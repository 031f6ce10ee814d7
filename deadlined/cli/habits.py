"""What to give instead of options of uvicorn, gunicorn and hypercorn that `deadlined serve` does not have."""

from __future__ import annotations

from typing import Final

from ..service.config import SETTINGS

_PROXIES: Final = "here it is --trusted-proxies, and nobody is believed by default"
_CLIENTS: Final = "here it is --client-ca: with it each client must have a certificate"
_TIMEOUT: Final = "here it is --worker-timeout, for a worker process that hangs; the time of a request is --handler"
_STDOUT: Final = "logs go to stdout; --no-access-log leaves out those of requests"
_HEAD: Final = "here it is --max-head, for all of a request's head"
_USERS: Final = "let a service manager choose the user, such as systemd or a container; --uds-owner is for sockets"
_LINES: Final = "the fields of a request's line are fixed: JSON, or text with --log-format text"
_METRICS: Final = "metrics are for Prometheus, at /metrics of --admin"
_WATCHED: Final = "--reload watches the Python files of --reload-dir"
_HTTP: Final = "HTTP/1.1 is served; a proxy in front speaks HTTP/2 and HTTP/3"

# by the setting that does the same
_RENAMED: Final = {
    "idle": ("--timeout-keep-alive", "--keep-alive"),
    "drain": ("--timeout-graceful-shutdown", "--graceful-timeout"),
    "read": ("--read-timeout",),
    "loop": ("--worker-class", "-k", "--asgi-loop"),
    "worker_timeout": ("--timeout-worker-healthcheck",),
    "certfile": ("--ssl-certfile", "--ssl-certificate"),
    "keyfile": ("--ssl-keyfile",),
    "ciphers": ("--ssl-ciphers",),
    "tls_min": ("--ssl-version",),
    "max_headers": ("--limit-request-fields",),
    "uds_mode": ("--umask",),
    "app_dir": ("--chdir", "--pythonpath"),
    "ws_ping": ("--ws-ping-interval", "--websocket-ping-interval"),
    "ws_pong": ("--ws-ping-timeout",),
    "max_message": ("--ws-max-size", "--websocket-max-message-size"),
    "http": ("--http-parser",),
    "ws_compression": ("--ws-per-message-deflate",),
    "log_format": ("--use-colors", "--no-use-colors"),
}

_OTHERS: Final = {
    "--fd": "here it is --bind fd://NUMBER",
    "--proxy-headers": _PROXIES,
    "--no-proxy-headers": _PROXIES,
    "--forwarded-allow-ips": _PROXIES,
    "--ssl-ca-certs": _CLIENTS,
    "--ca-certs": _CLIENTS,
    "--ssl-cert-reqs": _CLIENTS,
    "--cert-reqs": _CLIENTS,
    "--verify-mode": _CLIENTS,
    "--ssl-keyfile-password": "here it is --key-password-file; a password on a command line can be seen by all users",
    "--keyfile-password": "here it is --key-password-file; a password on a command line can be seen by all users",
    "--limit-concurrency": "connections are not limited in number here: each of their phases has a deadline",
    "--worker-connections": "connections are not limited in number here: each of their phases has a deadline",
    "--limit-max-requests": "processes are not replaced here; --max-requests is for each connection",
    "--limit-max-requests-jitter": "processes are not replaced here; --max-requests is for each connection",
    "--max-requests-jitter": "processes are not replaced here; --max-requests is for each connection",
    "--timeout": _TIMEOUT,
    "-t": _TIMEOUT,
    "--backlog": "the backlog is as long as the system allows (net.core.somaxconn)",
    "--h11-max-incomplete-event-size": _HEAD,
    "--limit-request-line": _HEAD,
    "--limit-request-field_size": _HEAD,
    "--interface": "ASGI 3 is the only interface",
    "--ws": "websockets are served wherever the extra `websockets` is installed",
    "--ws-max-queue": "the bound is fixed here: 64 messages or 64 KiB, beyond which a client is not read",
    "--lifespan": "the lifespan is always tried, and an application without one is served",
    "--asgi-lifespan": "the lifespan is always tried, and an application without one is served",
    "--reset-contextvars": "each request has a context of its own",
    "--server-header": "a Server field is never sent",
    "--no-server-header": "a Server field is never sent",
    "--date-header": "a Date field is always sent",
    "--no-date-header": "a Date field is always sent",
    "--header": "the application sets the fields of its responses",
    "--log-config": "here it is --log-level; the application can configure the logging module",
    "--log-config-json": "here it is --log-level; the application can configure the logging module",
    "--access-logformat": _LINES,
    "--statsd-host": _METRICS,
    "--statsd-prefix": _METRICS,
    "--error-log": _STDOUT,
    "--access-logfile": _STDOUT,
    "--error-logfile": _STDOUT,
    "--log-file": _STDOUT,
    "--reload-include": _WATCHED,
    "--reload-exclude": _WATCHED,
    "--reload-delay": _WATCHED,
    "--reload-engine": _WATCHED,
    "--reload-extra-file": _WATCHED,
    "--http2": _HTTP,
    "--http-protocols": _HTTP,
    "--quic-bind": _HTTP,
    "--insecure-bind": "all places of --bind speak TLS, or none; a second server can send clients on to the first",
    "--proxy-protocol": "the PROXY protocol is not spoken; --trusted-proxies is about header fields",
    "--reuse-port": "with --workers each worker process has a socket of its own",
    "--check-config": "here it is the command `deadlined config validate`",
    "--print-config": "here it is the command `deadlined config show`",
    "--worker-tmp-dir": "worker processes need no files",
    "--pid": "let a service manager start it, such as systemd or a container; each line of the log has the process",
    "--user": _USERS,
    "-u": _USERS,
    "--group": _USERS,
    "-g": _USERS,
    "--threads": "a process has one event loop; --workers starts several",
    "--preload": "each worker process imports the application",
    "--daemon": "let a service manager start it, such as systemd or a container",
    "-D": "let a service manager start it, such as systemd or a container",
    "--env": "here it is --env-file, or a variable in front of the command",
    "-e": "here it is --env-file, or a variable in front of the command",
}


def instead_of(option: str) -> str | None:
    """Return what to give instead of an option of another server, None if it is not known."""
    for name, options in _RENAMED.items():
        if option in options and name in SETTINGS:
            return f"here it is {SETTINGS[name].flag}"
    return _OTHERS.get(option)
