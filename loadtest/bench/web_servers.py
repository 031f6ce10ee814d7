"""The servers of the HTTP benchmarks, as servers.toml has them, and how each is started."""

from __future__ import annotations

import functools
import socket
import ssl
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .. import apps, frameworks
from ..servers import START, Server, running, tool
from . import builds, golang, processes
from .contest import Contestant, ContestantError
from .crowd import WEBSOCKET, Crowd
from .web_cases import ECHO, PAGES, Case, Speaks

# what each application answers, by path; the pages are those of loadtest/peers/go/web, too
_ANSWERS: Final = {**frameworks.ANSWERS, PAGES: {path: body for path, (_, body) in apps.PAGES.items()}, ECHO: {}}
_TAKES_UPLOADS: Final = (PAGES, frameworks.STARLETTE)


@dataclass(frozen=True)
class Entry:
    """A server of servers.toml, whose command has the words filled in."""

    name: str
    command: str
    needs: Sequence[str] = ()
    speaks: Sequence[Speaks] = ("http",)
    tls: str = ""
    program: str = ""

    def contestant(self) -> Contestant:
        """Return its contestant, which is missing if something is not installed."""
        if self.program:
            return golang.contestant(self.name)
        absent = [module for module in self.needs if find_spec(module) is None]
        if absent:
            return Contestant(self.name, f"not installed (pip install {' '.join(absent)})")
        compiled, pure = builds.contestants()
        build = pure if self.name.startswith(builds.PURE) else compiled
        return Contestant(self.name, build.missing if self.name.startswith(builds.INSTALLED) else None)

    def refuses(self, case: Case) -> str | None:
        """Say why the server is not for this case; None if it is."""
        if self.program and case.app != PAGES:
            return f"{self.name} serves no application in Python"
        return None if case.speaks in self.speaks else f"{self.name} is not measured with {case.speaks}"

    def start(self, case: Case) -> list[str]:
        """Return the command that serves this case."""
        words = {"app": case.app, "port": str(free_port())}
        template = self.command
        if case.speaks == "tls":
            words["certificate"], words["key"] = map(str, certificate())
            template += f" {self.tls}"
        program = [golang.program(self.program)] if self.program else [sys.executable, "-m"]
        return [*program, *(word.format(**words) for word in template.split())]


_TABLE: Final = tomllib.loads(Path(__file__).with_name("servers.toml").read_text(encoding="utf-8"))
# the options of `deadlined serve` that switch all deadlines off
DEADLINES_OFF: Final[str] = _TABLE["words"]["off"]


def _read() -> Iterator[Entry]:
    """Read the table. TypeError if something of it is unknown or missing."""
    for server in _TABLE["server"]:
        command = server["command"]
        for word, text in _TABLE["words"].items():
            command = command.replace(f"{{{word}}}", text)
        yield Entry(**{**server, "command": command})


ENTRIES: Final[Mapping[str, Entry]] = {entry.name: entry for entry in _read()}

OURS: Final = f"{builds.INSTALLED} httptools"
OURS_OFF: Final = f"{builds.INSTALLED} httptools, deadlines off"
OURS_UVLOOP: Final = f"{builds.INSTALLED} httptools uvloop"
OURS_H11: Final = f"{builds.INSTALLED} h11"
OURS_H11_OFF: Final = f"{builds.INSTALLED} h11, deadlines off"
PURE_H11: Final = f"{builds.PURE} h11"
UVICORN_H11: Final = "uvicorn h11 asyncio"
UVICORN_FAST: Final = "uvicorn httptools uvloop"
UVICORN_WEBSOCKETS: Final = "uvicorn websockets uvloop"
HYPERCORN: Final = "hypercorn trio"
GRANIAN: Final = "granian"
GRANIAN_ST: Final = "granian st"
GRANIAN_WEBSOCKETS: Final = "granian websockets"
GO: Final = "Go net/http"


def free_port() -> int:
    """Return a port on which no socket listens at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@functools.cache
def certificate() -> tuple[Path, Path]:
    """Make a self-signed certificate of ECDSA, P-256, and its key, with the command `openssl`; once in a run."""
    folder = _folder().name
    made, key = Path(folder, "cert.pem"), Path(folder, "key.pem")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    command = [tool("openssl"), "req", "-x509", *curve, "-nodes", "-keyout", str(key), "-out", str(made), "-days", "2"]
    processes.output([*command, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"])
    return made, key


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder that is deleted with the process."""
    return tempfile.TemporaryDirectory(prefix="deadlined-tls-")


@functools.cache
def any_certificate() -> ssl.SSLContext:
    """Return the context of a client that believes every server."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def serving(entry: Entry, case: Case) -> Iterator[Server]:
    """Start this server and yield it when it has answered correctly. ContestantError if it does not."""
    around = builds.surroundings(entry.name, neutral=case.neutral)
    with running(entry.start(case), core=processes.SERVER_CORE, environment=around) as server:
        if case.speaks == "websocket":
            wait_for_answer(server, lambda: _open_websocket(server.port))
        else:
            address = f"{'https' if case.speaks == 'tls' else 'http'}://127.0.0.1:{server.port}"
            for path, body in _ANSWERS[case.app].items():
                wait_for_answer(server, partial(_expect, address + path, body))
            if case.app in _TAKES_UPLOADS:
                wait_for_answer(server, partial(_expect, f"{address}/upload", b"65536", bytes(65536)))
        yield server


def _open_websocket(port: int) -> None:
    with Crowd(port, WEBSOCKET) as crowd:
        crowd.open(1)


def _expect(url: str, body: bytes, data: bytes | None = None) -> None:
    with urllib.request.urlopen(url, data, timeout=START, context=any_certificate()) as response:
        found = response.read()
    if found != body:
        raise ContestantError(f"{url} answers {len(found)} bytes, {found[:80]!r}, and not {body[:80]!r}")


def wait_for_answer(server: Server, ask: Callable[[], object]) -> None:
    """Ask until it works; only a refused connection is tried again, because granian reports its port before its worker
    listens. ContestantError if it does not work."""
    end = time.monotonic() + START
    while True:
        try:
            ask()
            return
        except (OSError, RuntimeError, ContestantError) as error:
            if not isinstance(getattr(error, "reason", error), ConnectionRefusedError) or time.monotonic() > end:
                raise ContestantError(f"{error}\n{''.join(server.output)}") from error
            time.sleep(0.05)
