"""What the commands that attack a target say, and their exit codes, when it cannot be attacked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from .target import ForbiddenTargetError, UnusableTargetError


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the block into one line and an exit code: 2 for a target that may not be attacked, 3 for one that
    does not answer as it must, 1 for what else is missing."""
    try:
        yield
    except ForbiddenTargetError as error:
        raise click.UsageError(str(error)) from error
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    except UnusableTargetError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(3)
