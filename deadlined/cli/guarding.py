"""The commands `deadlined proxy` and `deadlined run`: a guard in front of any HTTP server, or of any TCP server."""

from __future__ import annotations

from typing import Any

import click

from ..service.config import PROXY, RUN
from .options import GroupedCommand, resolved, settings
from .outcome import serve_and_exit


@click.command("proxy", cls=GroupedCommand, short_help="Guard servers that already run.")
@settings(PROXY)
@click.pass_context
def proxy_command(context: click.Context, /, config: str | None, env_file: str | None, **given: Any) -> None:
    """Guard HTTP servers that already run: pass requests on to them, every phase of every connection under its own
    deadline, on both sides. The upstream with the fewest requests gets the next one. With --tcp, guard servers of any
    TCP protocol: pass bytes on.

    \b
    Examples:
      deadlined proxy --upstream 127.0.0.1:9000
      deadlined proxy --upstream unix:/run/shop.sock --host 0.0.0.0 --port 80
      deadlined proxy --upstream 10.0.0.1:80 --upstream 10.0.0.2:80 --workers 2
      deadlined proxy --upstream 127.0.0.1:9000 --upstream-first-byte 20s
      deadlined proxy --upstream 127.0.0.1:9000 --certfile cert.pem --keyfile key.pem
      deadlined proxy --tcp --upstream 127.0.0.1:5432 --port 6432
      deadlined proxy --config guard.toml

    `deadlined run` also starts the server that it guards.

    An upstream that refuses, breaks off or is too slow is answered for: 502, 504 at one of its deadlines, or 503 if a
    request has waited for --upstream-queue. With --tcp the client's connection is reset instead.

    Signals do what they do to `deadlined serve`: SIGTERM drains, and SIGHUP reads the file of --config again, with the
    deadlines of upstreams.

    Exit codes: 0 drained, 1 failed, 2 wrong arguments or configuration, 3 cannot listen, 4 the drain has cut a request,
    or with --tcp a connection.
    """
    serve_and_exit(context, resolved(PROXY, config, env_file, given))


@click.command(
    "run",
    cls=GroupedCommand,
    short_help="Start an HTTP server and guard it.",
    # options after the first word are those of the command
    context_settings={"allow_interspersed_args": False},
)
@settings(RUN)
@click.pass_context
def run_command(context: click.Context, /, config: str | None, env_file: str | None, **given: Any) -> None:
    """Start an HTTP server with COMMAND and guard it: every phase of every connection has its own deadline. COMMAND
    must listen where it is told: {uds} is replaced by the path of a unix socket, or {port} by a port of 127.0.0.1.

    \b
    Examples:
      deadlined run -- uvicorn app:app --uds {uds} --forwarded-allow-ips '*'
      deadlined run --port 80 -- gunicorn mysite.wsgi --bind unix:{uds}
      deadlined run -- gunicorn -k asgi app:app --bind unix:{uds}
      deadlined run --handler 30s -- hypercorn app:app --bind unix:{uds}
      deadlined run -- node server.js --port {port}
      deadlined run --config shop.toml

    COMMAND is started again if it ends, and requests wait for it, for --upstream-queue at most. It gets no signals of
    the terminal.

    SIGTERM and SIGINT begin a drain: open requests are answered, then COMMAND gets SIGTERM, and SIGKILL once --drain
    has passed. A second signal, 0.1 seconds later or more, cuts open requests, and gives COMMAND one more second.
    SIGHUP reads the file of --config again.

    `deadlined proxy` guards a server that already runs.

    Exit codes: 0 drained, 1 failed, 2 wrong arguments or configuration, 3 cannot listen, 4 the drain has cut a request.
    """
    serve_and_exit(context, resolved(RUN, config, env_file, given))
