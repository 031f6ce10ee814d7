"""A group of commands that ends as a shell expects when it is interrupted."""

from __future__ import annotations

import sys
from typing import Any

import click

from .interrupts import INTERRUPTED


class Commands(click.Group):
    """A group that exits with INTERRUPTED at Ctrl-C, whichever command runs. click would exit with 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            sys.exit(INTERRUPTED)
