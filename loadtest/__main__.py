"""`python -m loadtest COMMAND`: the command line of command.py, which takes half a second to load."""

from __future__ import annotations

from .interrupts import loading


def run() -> None:
    with loading():
        from .command import main
    main()


if __name__ == "__main__":
    run()
