"""The HTTP servers that are compared: how each is started and what it needs.

All serve the application of the case (Go: the pages of `loadtest.apps:web`), in one process on one core, without an
access log. The timeouts that a server has are on and long, so that nothing is cut during a measurement. Peers write no
fields that ours does not write, and read none that ours does not read. Their garbage collector is set as ours, but in
granian's worker processes.
"""

from __future__ import annotations

import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from ..apps import PAGES
from ..frameworks import ANSWERS
from ..servers import START, Server, deadlined_command, running
from . import builds, golang
from .contest import Contestant, ContestantError
from .loaded import wait_for_answer
from .processes import SERVER_CORE

APP: Final = "loadtest.apps:web"
# seconds; beyond any measurement
LONG: Final = 90

_H11: Final = ("--http", "h11")
_HTTPTOOLS: Final = ("--http", "httptools")
_ON: Final = tuple(
    word
    for timeout in ("handshake", "read-header", "read", "write", "idle", "handler", "connection-age")
    for word in (f"--{timeout}", f"{LONG}s")
)  # the minimum rates of body and write are on by default
_OFF: Final = tuple(
    word
    for timeout in (
        "handshake", "read-header", "read", "body-grace", "write-grace", "write", "idle", "handler", "connection-age"
    )
    for word in (f"--{timeout}", "off")
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A server. `command(app)` makes its command when it is started; `needs`: modules without which it is missing."""

    name: str
    command: Callable[[str], Sequence[str]]
    needs: Sequence[str] = ()

    def contestant(self) -> Contestant:
        """Return its contestant, which is missing if something is not installed."""
        compiled, pure = builds.contestants()
        if self.name.startswith("Go"):
            return golang.contestant(self.name)
        if self.name.startswith(builds.PURE):
            return Contestant(self.name, pure.missing)
        absent = [module for module in self.needs if find_spec(module) is None]
        if absent:
            return Contestant(self.name, f"not installed (pip install {' '.join(absent)})")
        return Contestant(self.name, compiled.missing if self.name.startswith(builds.INSTALLED) else None)


def _ours(*flags: str) -> Callable[[str], list[str]]:
    return lambda app: deadlined_command(app, "--no-access-log", *flags)


def _uvicorn(http: str, loop: str) -> Callable[[str], list[str]]:
    return lambda app: tuned_command(
        "uvicorn", app, "--http", http, "--loop", loop, "--ws", "none", "--no-access-log", "--no-proxy-headers",
        "--no-server-header", "--timeout-keep-alive", str(LONG), "--host", "127.0.0.1", "--port", "0",
    )  # fmt: skip


def _hypercorn(app: str) -> list[str]:
    # no worker processes: it serves in the first one
    return tuned_command(
        "hypercorn", "--worker-class", "trio", "--workers", "0", "--keep-alive", str(LONG), "--bind", "127.0.0.1:0", app
    )


def _granian(*flags: str) -> Callable[[str], list[str]]:
    # it does not report the port that the system chose
    return lambda app: module_command(
        "granian", "--interface", "asgi", "--workers", "1", "--http", "1", "--no-ws", "--loop", "uvloop",
        "--no-access-log", "--host", "127.0.0.1", "--port", str(free_port()), *flags, app,
    )  # fmt: skip


def tuned_command(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a server with the garbage collector as ours."""
    return module_command("loadtest.peers.tuned", name, *arguments)


def module_command(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this Python."""
    return [sys.executable, "-m", name, *arguments]


OURS: Final = f"{builds.INSTALLED} httptools"
OURS_OFF: Final = f"{builds.INSTALLED} httptools, deadlines off"
OURS_UVLOOP: Final = f"{builds.INSTALLED} httptools uvloop"
OURS_ASYNCIO: Final = f"{builds.INSTALLED} httptools asyncio"
OURS_H11: Final = f"{builds.INSTALLED} h11"
OURS_H11_OFF: Final = f"{builds.INSTALLED} h11, deadlines off"
PURE_H11: Final = f"{builds.PURE} h11"
UVICORN_H11: Final = "uvicorn h11 asyncio"
UVICORN_FAST: Final = "uvicorn httptools uvloop"
HYPERCORN: Final = "hypercorn trio"
GRANIAN: Final = "granian"
GRANIAN_ST: Final = "granian st"
GO: Final = "Go net/http"

# servers whose tax alone is measured, with the argument of loadtest.peers.http_tax
TAX: Final = f"{builds.INSTALLED} httptools, deadlines on and off in turn"
TAX_H11: Final = f"{builds.INSTALLED} h11, deadlines on and off in turn"
TAXES: Final[Mapping[str, str]] = {TAX: "httptools", TAX_H11: "h11"}

# bounds: what every server on trio must do; not peers
FLOOR_H11: Final = "the least: trio and h11"
FLOOR_FAST: Final = "the least: trio and httptools"
FLOORS: Final = (FLOOR_H11, FLOOR_FAST)

_ENTRIES: Final = (
    Entry(OURS_H11, _ours(*_H11, *_ON)),
    Entry(OURS_H11_OFF, _ours(*_H11, *_OFF)),
    Entry(OURS, _ours(*_HTTPTOOLS, *_ON), ("httptools",)),
    Entry(OURS_OFF, _ours(*_HTTPTOOLS, *_OFF), ("httptools",)),
    Entry(OURS_UVLOOP, _ours(*_HTTPTOOLS, *_ON, "--loop", "uvloop"), ("httptools", "uvloop")),
    Entry(OURS_ASYNCIO, _ours(*_HTTPTOOLS, *_ON, "--loop", "asyncio"), ("httptools",)),
    Entry(PURE_H11, _ours(*_H11, *_ON)),
    Entry(UVICORN_H11, _uvicorn("h11", "asyncio"), ("uvicorn",)),
    Entry(UVICORN_FAST, _uvicorn("httptools", "uvloop"), ("uvicorn", "httptools", "uvloop")),
    Entry(HYPERCORN, _hypercorn, ("hypercorn",)),
    Entry(GRANIAN, _granian(), ("granian", "uvloop")),
    Entry(GRANIAN_ST, _granian("--runtime-mode", "st"), ("granian", "uvloop")),
    Entry(FLOOR_H11, lambda app: module_command("loadtest.peers.floor", "h11")),
    Entry(FLOOR_FAST, lambda app: module_command("loadtest.peers.floor", "httptools"), ("httptools",)),
    Entry(GO, lambda app: [golang.program("web"), str(LONG)]),
    Entry(TAX, lambda app: module_command("loadtest.peers.http_tax", TAXES[TAX]), ("httptools",)),
    Entry(TAX_H11, lambda app: module_command("loadtest.peers.http_tax", TAXES[TAX_H11])),
)
ENTRIES: Final[Mapping[str, Entry]] = {entry.name: entry for entry in _ENTRIES}


def free_port() -> int:
    """Return a port on which no socket listens at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(entry: Entry, environment: Mapping[str, str], app: str = APP) -> Iterator[Server]:
    """Start this server and yield it when it has answered correctly. ContestantError if it does not."""
    with running(entry.command(app), core=SERVER_CORE, environment=environment) as server:
        if entry.name in FLOORS or entry.name in TAXES:
            _expect(server, "/", PAGES["/"][1])
        elif app == APP:
            for path, (_, body) in PAGES.items():
                _expect(server, path, body)
            _expect(server, "/upload", b"65536", data=bytes(65536))
        else:
            for path, body in ANSWERS[app].items():
                _expect(server, path, body)
        yield server


def _expect(server: Server, path: str, body: bytes, data: bytes | None = None) -> None:
    """Request once; retry while the connection is refused."""

    def ask() -> None:
        with urllib.request.urlopen(f"{server.url}{path}", data, timeout=START) as response:
            found = response.read()
        if found != body:
            raise ContestantError(f"{path} answers {len(found)} bytes, {found[:80]!r}, and not {body[:80]!r}")

    wait_for_answer(server, ask)
