"""The options of the commands that serve: the one source of flags, variables, keys of the file, help and reference.

A field of `ServeConfig` is a setting, with its help, its group, its kind and its commands in the annotation. The fields
of its parts are settings as well; what holds for them is in `parts.py`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...asgi import check_root_path
from ...asgi.lifespan import LIFESPANS
from ...http import PARSERS, Limits, Route, Timeouts
from ...proxy import Address, ProxyLimits, ProxyTimeouts
from ...runtime import LOOPS
from ...timers import SCHEMES
from ..log.logs import ACCESS_LOG_LINES, FORMATS, LEVELS
from ..tls.certificates import CLIENT_CERTIFICATES, VERSIONS
from . import binds, fields
from .groups import (
    ADMIN,
    APPLICATION,
    LISTEN,
    LOGS,
    PROCESSES,
    PROXY,
    RARE,
    RUN,
    SERVE,
    TLS,
    UPSTREAM,
    about,
)
from .kinds import Checked, Mode, Program, Words, duration_kind

# more worker processes are a mistake, such as a 0 too many: they take a machine's memory before anybody can react
MOST_WORKERS = 1000

# WRITTEN of http/trusted.py, which is loaded only where proxies are trusted
FORWARDED_FIELDS = ("both", "forwarded", "x-forwarded")


def _check_proxy(text: str) -> None:
    """Raise ValueError for a text that does not name a proxy."""
    from ...http.trusted import proxy

    proxy(text)


def _check_upstream(text: str) -> None:
    """Raise ValueError for a text that is not the address of an upstream."""
    Address.parse(text)


class ServeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `deadlined serve`, `proxy` and `run`. Durations are in seconds, sizes in bytes, `inf` is off.

    At most one of `app`, `upstream` and `command` says what is served; without any it is the live page.
    """

    host: Annotated[
        str,
        about(LISTEN, "Address or name to listen on; empty for all.", kind=Checked("host", binds.check_host)),
    ] = "127.0.0.1"
    port: Annotated[
        int, msgspec.Meta(ge=0, le=65535), about(LISTEN, "TCP port; 0 lets the system choose.", short="p")
    ] = 8000
    uds: Annotated[str | None, about(LISTEN, "Listen on a unix socket, not on TCP.", name="path")] = None
    bind: Annotated[
        tuple[str, ...],
        about(
            LISTEN,
            "Listen here, and in several places if it is given more than once: host:port, [address]:port, unix:path, "
            "or fd://number for a listening socket that was inherited. In place of --host, --port and --uds.",
            short="b",
            kind=Words("places", binds.ALLOWED, binds.parse_bind),
        ),
    ] = ()
    uds_mode: Annotated[
        int,
        about(
            LISTEN,
            "Permissions of unix sockets, in octal; the default lets every local user connect.",
            kind=Mode(),
        ),
    ] = 0o666
    uds_owner: Annotated[
        str | None,
        about(
            LISTEN,
            "Owner of the unix socket, user:group, if it is not the user that runs the server.",
            kind=Checked("user:group", binds.check_owner),
        ),
    ] = None
    trusted_proxies: Annotated[
        tuple[str, ...],
        about(
            LISTEN,
            "Proxies whose Forwarded and X-Forwarded-* fields are believed: addresses, networks such as 10.0.0.0/8, or "
            "unix for unix sockets. None by default.",
            kind=Words("proxies", "write addresses, networks or unix", _check_proxy),
        ),
    ] = ()
    forwarded_fields: Annotated[
        str,
        about(
            LISTEN,
            "The fields that your proxies write: forwarded, x-forwarded, or both, of which only what they agree on is "
            "believed. The other fields may be a client's.",
            choices=FORWARDED_FIELDS,
        ),
    ] = "both"

    app: Annotated[
        str | None,
        about(APPLICATION, "The application, package.module:attribute.", SERVE, name="app", flag=False),
    ] = None
    factory: Annotated[
        bool, about(APPLICATION, "APP is a function without arguments; what it returns is served.", SERVE)
    ] = False
    app_dir: Annotated[
        str | None,
        about(
            APPLICATION,
            "Import the application from this directory, before the current one.",
            SERVE,
            name="directory",
        ),
    ] = None
    root_path: Annotated[
        str,
        about(
            APPLICATION,
            "Path at which a proxy has mounted the application, and which it removes, such as /shop.",
            SERVE,
            kind=Checked("path", check_root_path),
        ),
    ] = ""
    lifespan: Annotated[
        str,
        about(
            APPLICATION,
            "Startup and shutdown of the application (ASGI's lifespan): auto runs them if it has them, on ends the "
            "start if it does not or raises, off leaves them out.",
            SERVE,
            choices=LIFESPANS,
        ),
    ] = "auto"
    cancel_on_disconnect: Annotated[
        bool,
        about(
            APPLICATION,
            "Cancel the application's handler when its client leaves before the response is sent. Otherwise it runs to "
            "its end, and what it sends to nobody is discarded.",
            SERVE,
        ),
    ] = True
    trust_deadline_headers: Annotated[
        bool,
        about(
            APPLICATION,
            "Shorten the application's time to the time that a client says it waits, in grpc-timeout, "
            "x-envoy-expected-rq-timeout-ms or request-timeout.",
            SERVE,
        ),
    ] = False
    pathsend: Annotated[
        bool,
        about(
            APPLICATION,
            "Let applications give the path of a file as a response's body, which the server then reads itself (ASGI's "
            "http.response.pathsend). Some middlewares that change bodies lose such a body.",
            SERVE,
        ),
    ] = False

    upstream: Annotated[
        tuple[str, ...],
        about(
            UPSTREAM,
            "Guard the server that listens here, and several if it is given more than once: host:port, "
            "[address]:port, or unix:path.",
            PROXY,
            kind=Words("addresses", "write host:port, [address]:port or unix:/path", _check_upstream),
        ),
    ] = ()
    tcp: Annotated[
        bool,
        about(
            UPSTREAM,
            "Guard a server of any TCP protocol, a database for example: join each client's connection to one of an "
            "upstream, and pass bytes on unchanged.",
            PROXY,
        ),
    ] = False
    command: Annotated[
        tuple[str, ...],
        about(
            UPSTREAM,
            "The server to start and guard, with its arguments. {uds} is replaced by the path of a unix socket, or "
            "{port} by a port of 127.0.0.1, where it is to listen.",
            RUN,
            kind=Program(),
            flag=False,
        ),
    ] = ()
    proxy_timeouts: ProxyTimeouts = msgspec.field(default_factory=ProxyTimeouts)
    proxy_limits: ProxyLimits = msgspec.field(default_factory=ProxyLimits)

    timeouts: Timeouts = msgspec.field(default_factory=Timeouts)
    limits: Limits = msgspec.field(default_factory=Limits)
    # of the file only
    routes: tuple[Route, ...] = ()

    certfile: Annotated[str | None, about(TLS, "Certificate for TLS (PEM).", name="file")] = None
    keyfile: Annotated[str | None, about(TLS, "Private key, if it is not in --certfile.", name="file")] = None
    key_password_file: Annotated[
        str | None, about(TLS, "File whose first line is the password of the private key.", name="file")
    ] = None
    client_ca: Annotated[
        str | None,
        about(TLS, "Authorities (PEM); each client must have a certificate of one of them.", name="file"),
    ] = None
    client_certificate: Annotated[
        str,
        about(
            TLS,
            "Whether each client must have a certificate of --client-ca, or may do without. The application is told in "
            "ASGI's TLS extension.",
            choices=tuple(CLIENT_CERTIFICATES),
        ),
    ] = "required"
    client_crl: Annotated[
        str | None,
        about(TLS, "Lists of revoked certificates (PEM), one of each authority up to the root.", name="file"),
    ] = None
    ciphers: Annotated[
        str | None,
        about(TLS, "OpenSSL's list of cipher suites for TLS 1.2; those of TLS 1.3 are fixed.", name="list"),
    ] = None
    tls_min: Annotated[str, about(TLS, "Lowest accepted version of TLS.", choices=tuple(sorted(VERSIONS)))] = "1.2"

    workers: Annotated[
        int,
        msgspec.Meta(ge=1, le=MOST_WORKERS),
        about(
            PROCESSES,
            "Number of processes that share the port. From 2 on, one that ends or hangs is replaced; a single one is "
            "not.",
            SERVE,
            PROXY,
            name="number",
            short="w",
            shared_variable="WEB_CONCURRENCY",
        ),
    ] = 1
    worker_timeout: Annotated[
        float,
        about(
            PROCESSES,
            "With --workers: time after which a worker process whose event loop does not answer is killed, and "
            "replaced; 0 or off: never.",
            SERVE,
            PROXY,
            kind=duration_kind(zero_is_off=True),
        ),
    ] = 30.0
    loop: Annotated[
        str,
        about(
            PROCESSES,
            "Event loop that serves, and runs the application: trio, asyncio, or uvloop (asyncio in C, the extra "
            "`fast`).",
            choices=LOOPS,
        ),
    ] = "trio"

    reload: Annotated[
        bool,
        about(
            PROCESSES,
            "For development: restart the application when one of its files changes (the extra `reload`). "
            "Connections wait meanwhile.",
            SERVE,
        ),
    ] = False
    reload_dir: Annotated[
        tuple[str, ...],
        about(
            PROCESSES,
            "Directories that --reload watches for Python files; by default that of --app-dir, or the current one.",
            SERVE,
            kind=Words("directories", "write directories", str),
        ),
    ] = ()

    admin: Annotated[
        str | None,
        about(
            ADMIN,
            "Listen here for health checks, metrics and operators; see docs/metrics.md. Off by default.",
            kind=Checked("host:port|unix:path", binds.check_admin),
        ),
    ] = None
    admin_token_file: Annotated[
        str | None,
        about(
            ADMIN,
            "File whose first line is the token that --admin asks for; needed if other machines can connect.",
            name="file",
        ),
    ] = None

    log_format: Annotated[
        str,
        about(
            LOGS,
            "Layout of the log: text for people, JSON lines for machines, or auto: text on a terminal, JSON elsewhere.",
            choices=FORMATS,
        ),
    ] = "auto"
    log_level: Annotated[
        str,
        about(
            LOGS,
            "Lowest level of what is logged: the server's lines, the application's records, and the access log, in "
            "which failures and cuts are warnings, and all else is info.",
            choices=LEVELS,
        ),
    ] = "info"
    access_log: Annotated[bool, about(LOGS, "Log a line per request and per connection.")] = True
    access_log_lines: Annotated[
        str,
        about(
            LOGS,
            "Lines of the access log: all, or errors: requests answered with 500 or above, and requests and "
            "connections that were cut.",
            choices=ACCESS_LOG_LINES,
        ),
    ] = "all"
    access_log_fields: Annotated[
        tuple[str, ...],
        about(
            LOGS,
            "Header fields of requests that are added to their lines, such as user-agent, referer and x-request-id; "
            "never authorization or cookie.",
            kind=Words("fields", fields.ALLOWED, fields.check_field),
        ),
    ] = ()
    log_query: Annotated[
        bool, about(LOGS, "Log requests with the queries of their URLs, in which there may be tokens.")
    ] = True
    stall_log: Annotated[
        float,
        about(
            LOGS,
            "Log the stack of an application that blocks the event loop for this long.",
            kind=duration_kind(positive=True),
        ),
    ] = 1.0

    http: Annotated[
        str,
        about(
            RARE,
            "Parser of requests: h11, httptools (in C, the extra `fast`), or auto: httptools if it is installed.",
            choices=PARSERS,
        ),
    ] = "auto"
    ws_compression: Annotated[
        bool,
        about(RARE, "Compress the messages of websockets whose clients offer it (permessage-deflate).", SERVE),
    ] = True
    queue: Annotated[str, about(RARE, "Timer queue that keeps the deadlines.", choices=tuple(sorted(SCHEMES)))] = (
        "heap4"
    )
    precise: Annotated[
        bool,
        about(RARE, "Meet deadlines within a fraction of a millisecond instead of one or two milliseconds (Linux)."),
    ] = False

    def __post_init__(self) -> None:
        # worker processes and a reload import it again
        if not isinstance(self.app, str | None):
            raise TypeError(
                f"app must be a name, 'package.module:attribute', not an object of type {type(self.app).__name__}: "
                "await deadlined.asgi.serve(app) serves an object"
            )


# the help of each field of PARTS
