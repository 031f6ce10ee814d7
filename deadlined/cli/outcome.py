"""How a command ends: with an exit code, or an error on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from ..service import StartupError, serve
from ..service.config import Resolution
from ..service.log.style import Style, wants_colour
from ..service.log.tracebacks import full


class WrongConfiguration(click.ClickException):
    """A configuration is wrong, wherever it comes from. Each of `problems` is a line on stderr; the usage of a command
    would not help with the lines of a file."""

    exit_code = 2

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\nError: ".join(problems))


class Failure(click.ClickException):
    """A StartupError as one line on stderr, below the traceback of the application, and its exit code."""

    def __init__(self, error: StartupError) -> None:
        super().__init__(str(error))
        self._exit_code = error.exit_code
        self._details = error.details

    def show(self, file: Any = None) -> None:
        """Print it, and exit."""
        if self._details:
            sys.stderr.write(Style(wants_colour(sys.stderr)).traceback(self._details) + "\n")
        super().show(file)
        raise SystemExit(self._exit_code)


def serve_and_exit(context: click.Context, resolution: Resolution) -> NoReturn:
    """Serve with a configuration, and exit. Failure if the service cannot start."""
    try:
        context.exit(serve(resolution.config, resolution.sources))
    except StartupError as error:
        raise Failure(error) from error
    except EOFError as error:
        # click would say "Aborted!", as if somebody had ended the input of a question
        why = f"unexpected end of data: {error}; was the disk full when Python wrote its bytecode?"
        raise Failure(StartupError(why, details=full(error))) from error
