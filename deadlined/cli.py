"""The command `deadlined`."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, TypeVar

import click

from . import __version__
from .health import main as health
from .http import PARSERS, Limits, Timeouts
from .runtime import LOOPS
from .service import ServeConfig, StartupError, serve
from .service.certificates import VERSIONS
from .service.logs import FORMATS
from .service.style import Style, wants_colour
from .service.units import amount, duration, show_amount, show_duration
from .timers import COMPILED, SCHEMES

_F = TypeVar("_F", bound=Callable[..., Any])

_TIMEOUTS = {
    "handshake": "Time for the TLS handshake, from accept.",
    "read_header": "Time for a request's head, from accept or its first byte; cuts slowloris.",
    "read": "Time for a request's head and body.",
    "body_grace": "Time for a body, extended by received bytes / --body-min-rate.",
    "body_min_rate": "Bytes per second that extend --body-grace.",
    "write_grace": "Time for the client to take a send, or length / --write-min-rate if that is longer.",
    "write_min_rate": "Bytes per second at which a client must take a long send.",
    "write": "Time for the whole response, from the end of the request's head.",
    "idle": "Time that a connection may wait for the next request.",
    "handler": "Time for the application; then it is cancelled and the response is 504.",
    "connection_age": "Age of a connection after which its next response closes it (varied by 10 %).",
    "drain": "Time for open requests after SIGTERM; then they are cut.",
    "ws_ping": "Silence of a websocket's client after which it is asked for a sign of life.",
    "ws_pong": "Time for that sign; then the websocket is closed with 1011.",
    "ws_close": "Time for a websocket's client to answer a close.",
}

_LIMITS = {
    "max_head": "Bytes of a request's head; more is answered with 431.",
    "max_headers": "Header fields of a request; more are answered with 431.",
    "max_body": "Bytes of a request's body; more is answered with 413.",
    "max_requests": "Requests after which a connection is closed.",
    "max_message": "Bytes of a websocket's message, inflated; more close it with 1009.",
    "max_frame": "Bytes of one frame of it.",
}


class _Quantity(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """An option's value with a unit."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Mode(click.ParamType):  # type: ignore[type-arg]
    """Permission bits in octal."""

    name = "mode"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"(0o?)?[0-7]{3}", value):
            self.fail(f"{value!r} is not a mode: write three octal digits, such as 660", param, ctx)
        return int(value[-3:], 8)


class _Failure(click.ClickException):
    """A StartupError as one line on stderr, below the traceback of the application, and its exit code."""

    def __init__(self, error: StartupError) -> None:
        super().__init__(str(error))
        self._exit_code = error.exit_code
        self._details = error.details

    def show(self, file: Any = None) -> None:
        if self._details:
            sys.stderr.write(Style(wants_colour(sys.stderr)).traceback(self._details) + "\n")
        super().show(file)
        raise SystemExit(self._exit_code)


_DURATION = _Quantity("duration", duration)
_AMOUNT = _Quantity("amount", amount)


def _quantities(kind: type[Timeouts] | type[Limits], texts: dict[str, str]) -> Callable[[_F], _F]:
    """Return a decorator that gives a command one option for each field of `kind`."""

    def decorate(command: _F) -> _F:
        for field in reversed(fields(kind)):
            counted = kind is Limits or field.name.endswith("_rate")
            command = click.option(
                "--" + field.name.replace("_", "-"),
                type=_AMOUNT if counted else _DURATION,
                default=(show_amount if counted else show_duration)(field.default),
                show_default=True,
                envvar=f"DEADLINED_{field.name.upper()}",
                help=texts[field.name],
            )(command)
        return command

    return decorate


def _versions() -> str:
    timers = "compiled" if COMPILED else "pure Python"
    parts = [f"Python {platform.python_version()}", f"trio {version('trio')}", f"h11 {version('h11')}"]
    if find_spec("httptools") is not None:
        parts.append(f"httptools {version('httptools')}")
    return f"deadlined {__version__} (timers: {timers}; {', '.join(parts)})"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(message=_versions())
def main() -> None:
    """Put a deadline on every wait of every connection.

    Write durations as 500ms, 10s, 2m, 1h, or a number of seconds; `off` switches a deadline off. Every option can be
    given in the environment: --read-header is DEADLINED_READ_HEADER.
    """


@main.command("serve", short_help="Serve an ASGI application.")
@click.argument("app", required=False)
@click.option(
    "--host", default="127.0.0.1", show_default=True, envvar="DEADLINED_HOST", help="Address or name to listen on."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    envvar="DEADLINED_PORT",
    help="TCP port; 0 lets the system choose.",
)
@click.option(
    "--factory",
    is_flag=True,
    envvar="DEADLINED_FACTORY",
    help="APP is a function without arguments; what it returns is served.",
)
@click.option("--uds", metavar="PATH", envvar="DEADLINED_UDS", help="Listen on a unix socket, not on TCP.")
@click.option(
    "--uds-mode",
    type=_Mode(),
    default="666",
    show_default=True,
    envvar="DEADLINED_UDS_MODE",
    help="Permissions of the unix socket, in octal; the default lets every local user connect.",
)
@click.option("--certfile", metavar="FILE", envvar="DEADLINED_CERTFILE", help="Certificate for TLS (PEM).")
@click.option("--keyfile", metavar="FILE", envvar="DEADLINED_KEYFILE", help="Private key, if it is not in --certfile.")
@click.option(
    "--key-password-file",
    metavar="FILE",
    envvar="DEADLINED_KEY_PASSWORD_FILE",
    help="Password of the private key, in the first line.",
)
@click.option(
    "--client-ca",
    metavar="FILE",
    envvar="DEADLINED_CLIENT_CA",
    help="Authorities (PEM); each client must have a certificate of one of them.",
)
@click.option(
    "--ciphers",
    metavar="LIST",
    envvar="DEADLINED_CIPHERS",
    help="OpenSSL's list of cipher suites for TLS 1.2; those of TLS 1.3 are fixed.",
)
@click.option(
    "--tls-min",
    type=click.Choice(sorted(VERSIONS)),
    default="1.2",
    show_default=True,
    envvar="DEADLINED_TLS_MIN",
    help="Least version of TLS.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    envvar="DEADLINED_WORKERS",
    help="Number of worker processes that share the port; one that ends is replaced.",
)
@click.option(
    "--loop",
    type=click.Choice(LOOPS),
    default="trio",
    show_default=True,
    envvar="DEADLINED_LOOP",
    help="Event loop for the application: trio, asyncio, or uvloop (asyncio in C, the extra `fast`).",
)
@click.option(
    "--http",
    type=click.Choice(PARSERS),
    default="auto",
    show_default=True,
    envvar="DEADLINED_HTTP",
    help="Parser of requests: h11, httptools (in C, the extra `fast`), or auto: httptools if it is installed.",
)
@click.option(
    "--queue",
    type=click.Choice(sorted(SCHEMES)),
    default="heap4",
    show_default=True,
    envvar="DEADLINED_QUEUE",
    help="Timer queue that keeps the deadlines.",
)
@click.option(
    "--precise/--no-precise",
    default=False,
    show_default=True,
    envvar="DEADLINED_PRECISE",
    help="Meet deadlines within a fraction of a millisecond instead of one or two milliseconds (Linux).",
)
@click.option(
    "--cancel-on-disconnect/--no-cancel-on-disconnect",
    default=True,
    show_default=True,
    envvar="DEADLINED_CANCEL_ON_DISCONNECT",
    help="Cancel the application's handler when its client leaves before the response is sent.",
)
@click.option(
    "--admin",
    metavar="HOST:PORT|unix:PATH",
    envvar="DEADLINED_ADMIN",
    help="Listen there for health checks, metrics and operators; see docs/metrics.md. Off by default.",
)
@click.option(
    "--admin-token-file",
    metavar="FILE",
    envvar="DEADLINED_ADMIN_TOKEN_FILE",
    help="Token that --admin asks for, in the first line; needed where others than this machine can connect.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    envvar="DEADLINED_LOG_FORMAT",
    help="Layout of the log: text for people, JSON lines for machines, or auto: text on a terminal, JSON elsewhere.",
)
@click.option(
    "--ws-compression/--no-ws-compression",
    default=True,
    show_default=True,
    envvar="DEADLINED_WS_COMPRESSION",
    help="Compress the messages of websockets whose clients offer it (permessage-deflate).",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"]),
    default="info",
    show_default=True,
    envvar="DEADLINED_LOG_LEVEL",
    help="Least level of the server's and the application's log records.",
)
@click.option(
    "--access-log/--no-access-log",
    default=True,
    show_default=True,
    envvar="DEADLINED_ACCESS_LOG",
    help="Log a line per request and per connection.",
)
@click.option(
    "--stall-log",
    type=_DURATION,
    default="1s",
    show_default=True,
    envvar="DEADLINED_STALL_LOG",
    help="Log where the application blocks the event loop for so long, with its stack.",
)
@_quantities(Timeouts, _TIMEOUTS)
@_quantities(Limits, _LIMITS)
@click.pass_context
def serve_command(context: click.Context, /, **options: Any) -> None:
    """Serve the ASGI application APP (package.module:attribute) over HTTP/1.1, every phase of every connection under
    its own deadline. It runs on trio unless --loop says otherwise; the log tells if it seems to need another loop.

    Without APP, serve a page that shows the server's own connections and their deadlines.

    \b
    Examples:
      deadlined serve
      deadlined serve shop.web:app --host 0.0.0.0 --port 80
      deadlined serve shop.web:app --loop asyncio
      deadlined serve shop.web:make_app --factory
      deadlined serve shop.web:app --handler 30s --body-min-rate 2k --idle 2m
      deadlined serve shop.web:app --workers 4

    SIGTERM and SIGINT begin a drain: no connection is accepted, open requests are answered, and those that remain
    after --drain are cut. A second signal ends the server at once. With --workers, send signals to the process that was
    started; a worker process that gets one (or SIGHUP) drains and is replaced.

    Exit codes: 0 drained, 1 failed, 2 wrong arguments, 3 cannot listen.
    """
    try:
        timeouts = Timeouts(**{field.name: options.pop(field.name) for field in fields(Timeouts)})
        limits = Limits(**{field.name: options.pop(field.name) for field in fields(Limits)})
        if not options["stall_log"]:
            raise ValueError("--stall-log must be above 0; off switches it off")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        context.exit(serve(ServeConfig(timeouts=timeouts, limits=limits, **options)))
    except StartupError as error:
        raise _Failure(error) from error


@main.command(
    "health",
    short_help="Ask a running service whether it is ready.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def health_command(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Ask the admin listener of a running service whether it is ready. `deadlined health --help` tells more.

    The process's own entry does not come here, but calls `deadlined.health` before it imports this module.
    """
    context.exit(health(arguments))
