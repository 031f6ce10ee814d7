"""The commands `deadlined config show` and `deadlined config validate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..service import StartupError
from ..service.config import Resolution
from ..service.config.rereading import context_of
from ..service.config.showing import as_dictionary, as_toml
from ..service.content.importing import require_module
from .options import GroupedCommand, resolved, settings
from .outcome import WrongConfiguration


@click.group("config", short_help="Show or validate a configuration.")
def config_group() -> None:
    """Show or validate the configuration that `deadlined serve`, `proxy` or `run` would have with the same options,
    variables and file.

    The page docs/configuration.md lists all settings.
    """


@config_group.command("show", cls=GroupedCommand, short_help="Print every setting and where it comes from.")
@settings(None)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of TOML.")
def show_command(config: str | None, env_file: str | None, as_json: bool, **given: Any) -> None:
    """Print every setting as `deadlined serve`, `proxy` or `run` would have it with the same options, and where it
    comes from: a flag, a variable, a line of the file, or the default. What is printed is a file for --config. A
    heading says for which commands its settings are, if they are not for all.

    Exit codes: 0 printed, 1 cannot write, 2 the configuration is wrong.
    """
    resolution = _resolved(config, env_file, given)
    text = json.dumps(as_dictionary(resolution), indent=2) + "\n" if as_json else as_toml(resolution)
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        # click ends the process quietly
        raise
    except OSError as error:
        raise click.ClickException(f"cannot write: {error.strerror}") from None


@config_group.command("validate", cls=GroupedCommand, short_help="Report what is wrong with a configuration.")
@settings(None)
def validate_command(config: str | None, env_file: str | None, **given: Any) -> None:
    """Check all settings as `deadlined serve`, `proxy` or `run` would with the same options, and the certificate, its
    key and the authorities. It imports no application, starts no command, and listens nowhere.

    Each mistake is one line on stderr: where it is, its key and value, and what is allowed.

    Exit codes: 0 valid, 2 not valid.
    """
    resolution = _resolved(config, env_file, given)
    try:
        context_of(resolution.config)
    except StartupError as error:
        raise WrongConfiguration([str(error)]) from None
    click.echo("the configuration is valid")


def _resolved(config: str | None, env_file: str | None, given: dict[str, Any]) -> Resolution:
    """Return the configuration. WrongConfiguration if it is wrong, or names a file as the application: one for which
    --config was forgotten would not be read."""
    resolution = resolved(None, config, env_file, given)
    app, directory = resolution.config.app, resolution.config.app_dir
    try:
        if app is not None:
            require_module(app, Path(directory or "."))
    except StartupError as error:
        raise WrongConfiguration([str(error)]) from None
    return resolution
