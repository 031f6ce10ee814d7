"""The contestants, as contestants.toml and the files in configs/ have them: who they are, and how each is started."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

Settings = Literal["defaults", "best"]
Needs = Literal["python", "program", "go"]

_FOLDER: Final = Path(__file__).parent
_APPLICATIONS: Final = {"@ASGI@": "loadtest.grid.served:asgi", "@WSGI@": "loadtest.grid.served:wsgi"}


@dataclass(frozen=True)
class Setting:
    """One of the best settings: as it is written, and why."""

    text: str
    reason: str


@dataclass(frozen=True)
class Server:
    """A server. `command` and `config`, a file's text, are templates.

    `needs` tells how `package` is looked for: a distribution of Python, a program, or Go's toolchain. `debian` has the
    program's package. `proxy`: it needs an application behind it. `best` are its best settings; `note` is a remark.
    """

    name: str
    command: str
    best: tuple[Setting, ...]
    package: str
    needs: Needs = "python"
    debian: str = ""
    config: str = ""
    proxy: bool = False
    note: str = ""


@dataclass(frozen=True)
class Contestant:
    """A server with its defaults or with its best settings."""

    server: Server
    settings: Settings

    @property
    def name(self) -> str:
        """What the command line and the files of results call it."""
        return f"{self.server.name}-{self.settings}".replace(" ", "-")

    @property
    def options(self) -> tuple[Setting, ...]:
        """The settings beside the defaults."""
        return self.server.best if self.settings == "best" else ()


def _with_applications(command: str) -> str:
    for name, application in _APPLICATIONS.items():
        command = command.replace(name, application)
    return command


def _servers() -> Iterator[Server]:
    """Read the table. KeyError or TypeError if something of it is unknown or missing."""
    table: list[dict[str, Any]] = tomllib.loads((_FOLDER / "contestants.toml").read_text(encoding="utf-8"))["server"]
    for entry in table:
        found = {
            **entry,
            "command": _with_applications(entry["command"]),
            "best": tuple(Setting(**option) for option in entry["best"]),
        }
        if "config" in entry:
            found["config"] = (_FOLDER / "configs" / entry["config"]).read_text(encoding="utf-8")
        yield Server(**found)


# the application behind proxies
UPSTREAM: Final = _with_applications("@PYTHON@ -m uvicorn @ASGI@ --no-access-log --port @PORT@ --timeout-keep-alive 90")
SERVERS: Final = tuple(_servers())
CONTESTANTS: Final = {
    contestant.name: contestant
    for server in SERVERS
    for contestant in (Contestant(server, "defaults"), Contestant(server, "best"))
}
