"""Options of click, made of the settings, and their help in groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from ..service.config import GROUPS, RUN, SERVE, SETTINGS, ConfigurationError, Resolution, Setting, Sources, resolve
from ..service.config.kinds import Flag, Kind, Program, Words
from ..service.process.notify import inherited_sockets
from .foreign import unused_variables
from .outcome import WrongConfiguration

_F = TypeVar("_F", bound=Callable[..., Any])

_CONFIG_VARIABLE: Final = "DEADLINED_CONFIG"
_CONFIG_HELP = "Read settings from a TOML file; flags and variables take precedence."
_ENV_FILE_HELP = "Set the variables of this file that are not set, for the application and the settings."


# the options of a command that only say why it has none: it could have been expected
_REFUSED: Final = {RUN: ("workers",)}


class _Value(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """The value of a setting, as text."""

    def __init__(self, setting: Setting) -> None:
        self.name = setting.kind.name
        self._setting = setting

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._setting.parse(value)
        except ValueError as error:
            from .habits import instead_of_value

            instead = instead_of_value(self._setting.flag, value)
            self.fail(f"{error}; {instead}" if instead else str(error), param, ctx)


class SettingOption(click.Option):
    """The flag of a setting. Its variable is read with the other sources, not by click."""

    def __init__(self, setting: Setting, *, hidden: bool = False) -> None:
        default = f"  [default: {_default(setting)}]" if _default(setting) else ""
        names = [setting.flag, *([f"-{setting.short}"] if setting.short else [])]
        is_switch = isinstance(setting.kind, Flag)
        if is_switch:
            # a switch of a lower source can be turned back
            names[0] += f"/--no-{setting.flag[2:]}"
        super().__init__(
            names,
            type=None if is_switch else _Value(setting),
            is_flag=is_switch,
            multiple=isinstance(setting.kind, Words),
            default=None,
            envvar=setting.variable,
            help=setting.help + default,
            metavar=_metavar(setting.kind),
            hidden=hidden,
        )
        self.setting = setting

    def value_from_envvar(self, ctx: click.Context) -> Any:
        return None


class GroupedCommand(click.Command):
    """A command whose help has its settings in groups, and which knows the options of other servers."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. click.UsageError if they are wrong."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            instead = _of_other_commands(error.option_name)
            if instead is None:
                from .habits import instead_of

                instead = instead_of(error.option_name)
            if instead is None:
                raise
            raise click.UsageError(f"there is no {error.option_name}: {instead}", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, and one for options that are not settings."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        settings = [option for option in options if isinstance(option, SettingOption)]
        others = [option for option in options if not isinstance(option, SettingOption)]
        for group in GROUPS:
            _write(group, [param for param in settings if param.setting.group == group], ctx, formatter)
        _write("Other options", others, ctx, formatter)


def settings(command: str | None) -> Callable[[_F], _F]:
    """Return a decorator that gives a command a parameter for each of the settings that `command` has (None: for all),
    `--config` and `--env-file`."""

    def give(function: _F) -> _F:
        parameters = [found for setting in SETTINGS.values() if (found := _parameter(setting, command)) is not None]
        parameters += [
            click.Option(["--config", "-c"], metavar="FILE", envvar=_CONFIG_VARIABLE, help=_CONFIG_HELP),
            click.Option(["--env-file"], metavar="FILE", envvar="DEADLINED_ENV_FILE", help=_ENV_FILE_HELP),
        ]
        # click keeps the parameters of a function here until it makes the command, the last one first
        function.__dict__.setdefault("__click_params__", []).extend(reversed(parameters))
        return function

    return give


def resolved(command: str | None, config: str | None, env_file: str | None, given: dict[str, Any]) -> Resolution:
    """Set the variables of `env_file`, and return the configuration of `command` (None: of any) from the flags that
    were given, the environment and the file `config`, which `env_file` may name. Print warnings. WrongConfiguration if
    anything in them is wrong."""
    if env_file is not None:
        from .environment import load

        load(env_file)
        if config is None:
            # click has looked for the variable before the file was read
            config = os.environ.get(_CONFIG_VARIABLE) or None
    sockets = inherited_sockets(os.environ)
    # a copy: a reload must see the environment as it was at the start
    environment = dict(os.environ)
    try:
        resolution = resolve(
            Sources(command=command, flags=_flags(given), environment=environment, file=config, sockets=sockets)
        )
    except ConfigurationError as error:
        raise WrongConfiguration(error.problems) from None
    foreign = unused_variables(os.environ, resolution.origins) if command == SERVE else []
    for warning in (*resolution.warnings, *foreign):
        click.echo(f"Warning: {warning}", err=True)
    return resolution


def _flags(given: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were given. A flag that may be repeated has one list of all its words."""
    flags = {name: value for name, value in given.items() if value is not None and value != ()}
    for name, value in flags.items():
        if isinstance(SETTINGS[name].kind, Words):
            flags[name] = tuple(word for words in value for word in words)
    return flags


def _parameter(setting: Setting, command: str | None) -> click.Parameter | None:
    """Return the parameter of a setting, None if `command` has none."""
    is_refused = setting.name in _REFUSED.get(command or "", ())
    if not is_refused and command not in (None, *setting.commands):
        return None
    if setting.is_flag:
        return SettingOption(setting, hidden=is_refused)
    if not isinstance(setting.kind, Program):
        return click.Argument([setting.name], required=False, type=_Value(setting))
    # where the application has its place, only a variable or the file can give a command
    return None if command is None else click.Argument([setting.name], nargs=-1, metavar="-- COMMAND...")


def _of_other_commands(option: str) -> str | None:
    """Return which commands have an option, None if none has."""
    for setting in SETTINGS.values():
        if setting.is_flag and option in (setting.flag, f"--no-{setting.flag[2:]}", f"-{setting.short}"):
            return f"it is for {' and '.join(f'deadlined {name}' for name in setting.commands)}"
    return None


def _default(setting: Setting) -> str:
    """Return the default as the help shows it."""
    if isinstance(setting.kind, Flag):
        return setting.flag[2:] if setting.default else f"no-{setting.flag[2:]}"
    return f"${setting.shared_variable} or {setting.default_text}" if setting.shared_variable else setting.default_text


def _metavar(kind: Kind) -> str | None:
    """Return what stands for a value; None for a switch, which has none."""
    if isinstance(kind, Flag):
        return None
    return f"[{kind.name}]" if "|" in kind.name else kind.name.upper()


def _write(title: str, options: Sequence[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter) -> None:
    rows = [row for param in options if (row := param.get_help_record(ctx)) is not None]
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)
