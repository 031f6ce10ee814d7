"""`python -m deadlined` is the command `deadlined`."""

from __future__ import annotations

from .cli import main

main(prog_name="deadlined")
