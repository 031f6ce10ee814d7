"""The command `deadlined` in this process."""

from __future__ import annotations

import inspect
from typing import Any

from click.testing import CliRunner, Result

from deadlined.cli import main

# below 8.2 click keeps the standard error apart only if it is asked to
_APART: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}


def invoke(*arguments: str, **variables: str) -> Result:
    """Run the command, and return its exit code and what it has printed."""
    return CliRunner(**_APART).invoke(main, arguments, env=variables)
