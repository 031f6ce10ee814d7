"""The cases of the HTTP benchmarks, as cases.toml has them, and the load that each is."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from .. import frameworks
from ..servers import ROOT, Server
from . import client, processes, wrk

Speaks = Literal["http", "tls", "websocket"]

PAGES: Final = "loadtest.apps:web"
ECHO: Final = "loadtest.apps:echo"

_APPS: Final = {"": PAGES, "starlette": frameworks.STARLETTE, "fastapi": frameworks.FASTAPI}
_CLIENTS: Final = ROOT / "loadtest" / "clients"
# seconds that the client of websockets may take beyond its duration, for opening them and for noticing a stall
_PATIENCE: Final = 30.0


@dataclass(frozen=True)
class Case:
    """One case of cases.toml. `neutral`: the allocator keeps its memory. `message`: bytes and kind, of websockets."""

    app: str = PAGES
    path: str = "/"
    connections: int = 64
    options: Sequence[str] = ()
    neutral: bool = True
    speaks: Speaks = "http"
    message: tuple[int, str] = (0, "text")

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Case:
        """Make a case of its table. KeyError or TypeError if something of it is unknown."""
        found = dict(table)
        script, headers = found.pop("script", ""), found.pop("headers", ())
        app = _APPS[found.pop("app", "")]
        return cls(
            app=ECHO if found.get("speaks") == "websocket" else app,
            options=[*(("-s", str(_CLIENTS / script)) if script else ()), *(f"-H{header}" for header in headers)],
            neutral=found.pop("malloc", "") != "defaults",
            message=(found.pop("bytes", 0), "binary" if found.pop("binary", False) else "text"),
            **found,
        )

    @property
    def missing(self) -> str | None:
        """Say which program it needs that is not installed; None if there is none."""
        program = {"tls": "openssl", "websocket": "cc"}.get(self.speaks)
        return f"{program} is not installed" if program and shutil.which(program) is None else None


_TABLES: Final = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))
CASES: Final[Mapping[str, Case]] = {name: Case.read(table) for name, table in _TABLES.items()}

MAIN: Final = "hello"
MANY: Final = "hello, 1,000 connections"


def load(server: Server, case: Case, seconds: int) -> wrk.Requests:
    """Load a server for `seconds`, from a core of its own. ContestantError if anything but the answer comes."""
    if case.speaks == "websocket":
        return echoed(server.port, case.connections, case.message, seconds)
    scheme = "https" if case.speaks == "tls" else "http"
    return wrk.load(f"{scheme}://127.0.0.1:{server.port}{case.path}", case.connections, seconds, case.options)


def echoed(port: int, connections: int, message: tuple[int, str], seconds: float) -> wrk.Requests:
    """Let a server echo messages over websockets, each when the echo of the last has come."""
    size, kind = message
    command = [str(client.compiled(_CLIENTS / "websocket.c")), *map(str, (port, connections, size, kind, 0, seconds))]
    done = processes.run(command, core=processes.CLIENT_CORE, seconds=seconds + _PATIENCE)
    return wrk.Requests(int(done["messages"]), done["seconds"])
