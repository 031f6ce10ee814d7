"""`python -m deadlined` is the command `deadlined`."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command with the arguments of the process. A probe does not load the server."""
    if sys.argv[1:2] == ["health"]:
        from .health import main as health

        sys.exit(health(sys.argv[2:]))
    from .cli import main

    main(prog_name="deadlined")


if __name__ == "__main__":
    run()
