"""The command `deadlined`."""

from __future__ import annotations

import signal
import sys
from typing import Any

import click

from .. import __version__
from ..service.config import SERVE
from ..timers import COMPILED
from .options import GroupedCommand, resolved, settings
from .outcome import serve_and_exit

__all__ = ["main", "serve_command"]


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print what runs, and exit."""
    if not wanted:
        return
    import platform
    from importlib.metadata import version
    from importlib.util import find_spec

    timers = "compiled" if COMPILED else "pure Python"
    parts = [f"Python {platform.python_version()}", f"trio {version('trio')}", f"h11 {version('h11')}"]
    if find_spec("httptools") is not None:
        parts.append(f"httptools {version('httptools')}")
    click.echo(f"deadlined {__version__} (timers: {timers}; {', '.join(parts)})")
    context.exit()


class _Commands(click.Group):
    """The commands. Some are made when they are asked for: their options would make each start slower."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted([*super().list_commands(ctx), "config", "proxy", "run"])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Ctrl-C that it does not handle itself ends it with the exit code of that signal: click would
        exit with 1."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, None if there is none of this name."""
        if cmd_name == "config":
            from .configuration import config_group

            return config_group
        if cmd_name in ("proxy", "run"):
            from .guarding import proxy_command, run_command

            return proxy_command if cmd_name == "proxy" else run_command
        if cmd_name == "help":
            ctx.fail("'help' is no command: deadlined --help, or deadlined COMMAND --help")
        found = super().get_command(ctx, cmd_name)
        if found is None and ":" in cmd_name:
            ctx.fail(f"{cmd_name!r} is no command, but may be an application: deadlined serve {cmd_name}")
        return found


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Put a deadline on every wait of every connection.

    Write durations as 500ms, 10s, 1m30s, 1h, 1d, or a number of seconds; `off` switches a deadline off. Every option
    can be given in the environment, --read-header as DEADLINED_READ_HEADER, and in the file of --config, as
    read_header.
    """


@main.command("serve", cls=GroupedCommand, short_help="Serve an ASGI application.")
@settings(SERVE)
@click.pass_context
def serve_command(context: click.Context, /, config: str | None, env_file: str | None, **given: Any) -> None:
    """Serve the ASGI application APP (package.module:attribute) over HTTP/1.1, every phase of every connection under
    its own deadline. It runs on trio unless --loop says otherwise; the log says if it seems to need another loop.

    Without APP, serve a page that shows the server's own connections and their deadlines.

    \b
    Examples:
      deadlined serve
      deadlined serve shop.web:app --host 0.0.0.0 --port 80
      deadlined serve shop.web:app --loop asyncio
      deadlined serve shop.web:make_app --factory
      deadlined serve shop.web:app --handler 30s --body-min-rate 2k --idle 1m30s
      deadlined serve shop.web:app --workers 4
      deadlined serve --config shop.toml

    SIGTERM and SIGINT begin a drain: no connection is accepted, open requests are answered, and those that remain
    after --drain are cut. A second signal, 0.1 seconds later or more, cuts them at once. SIGHUP reads the file of
    --config and the certificates again: deadlines and limits change, also for open connections, and TLS for new ones.
    With --workers, send signals to the process that was started: SIGHUP also replaces the worker processes one by one,
    with new code; SIGTTIN and SIGTTOU start one more and end one. A worker process that gets a signal drains and is
    replaced.

    Exit codes: 0 drained, 1 failed, 2 wrong arguments or configuration, 3 cannot listen, 4 the drain has cut a request.
    """
    serve_and_exit(context, resolved(SERVE, config, env_file, given))


@main.command(
    "health",
    short_help="Ask a running service whether it is ready.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def health_command(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Ask the admin listener of a running service whether it is ready. `deadlined health --help` says more.

    The process's own entry does not come here, but calls `deadlined.health` before it imports this module.
    """
    from ..health import main as health

    context.exit(health(arguments))
