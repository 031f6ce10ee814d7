"""The contestants, as contestants.toml has them: who they are, and how each is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

Settings = Literal["defaults", "best"]
Needs = Literal["python", "program", "go"]


class Setting(Struct, frozen=True, forbid_unknown_fields=True):
    """One of the best settings: as it is written, and why."""

    text: str
    reason: str


class Server(Struct, frozen=True, forbid_unknown_fields=True):
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


# the application behind proxies
UPSTREAM: Final = "@PYTHON@ -m uvicorn @ASGI@ --no-access-log --port @PORT@ --timeout-keep-alive 90"
# unknown, missing and wrong fields are refused
SERVERS: Final = msgspec.toml.decode(
    Path(__file__).with_name("contestants.toml").read_bytes(), type=dict[str, tuple[Server, ...]]
)["server"]
CONTESTANTS: Final = {
    contestant.name: contestant
    for server in SERVERS
    for contestant in (Contestant(server, "defaults"), Contestant(server, "best"))
}
