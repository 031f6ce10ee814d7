"""The servers and the cases of the HTTP benchmarks, as servers.toml and cases.toml have them, and their use."""

from __future__ import annotations

import functools
import re
import shutil
import socket
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal

from .. import apps
from ..servers import START, Server, Usage, attempts, running, tool
from ..target import unverified
from . import builds, client, golang, processes
from .contest import Contestant, ContestantError, table
from .crowd import WEBSOCKET, Crowd

Speaks = Literal["http", "tls", "websocket"]

PAGES = "loadtest.apps:web"
ECHO = "loadtest.apps:echo"
# the plainest case
MAIN = "hello"

# what each application must answer before it is measured, by path; the pages are those of loadtest/peers/go/web, too
ANSWERS: Mapping[str, Mapping[str, bytes]] = {
    PAGES: {path: body for path, (_, body) in apps.PAGES.items()},
    ECHO: {},
    "loadtest.peers.starlette_app:app": {
        "/json": b'{"message":"Hello, world!","items":[0,1,2,3,4,5,6,7,8,9]}',
        "/pieces": b"x" * 2000,
        "/events": b"data: 0\n\n" * 20,
        "/sleep": b"slept",
        "/large": b"x" * 100_000,
    },
    "loadtest.peers.fastapi_app:app": {"/items/7?note=new": b'{"name":"item 7","price":1.5,"tags":["new"]}'},
}


@dataclass(frozen=True)
class Case:
    """One case of cases.toml, which says what each of these is."""

    app: str = PAGES
    path: str = "/"
    connections: int = 64
    headers: Sequence[str] = ()
    script: str = ""
    neutral: bool = True
    speaks: Speaks = "http"
    message: tuple[int, str] = (0, "text")
    access_log: bool = False

    def url(self, port: int) -> str:
        return f"{'https' if self.speaks == 'tls' else 'http'}://127.0.0.1:{port}{self.path}"

    @property
    def missing(self) -> str | None:
        """Say which program it needs that is not installed; None if there is none."""
        program = {"tls": "openssl", "websocket": "cc"}.get(self.speaks)
        return f"{program} is not installed" if program and shutil.which(program) is None else None


CASES: Mapping[str, Case] = {name: Case(**case) for name, case in table("cases.toml").items()}

_SERVERS = table("servers.toml")
# what a word of a command stands for
WORDS: Mapping[str, str] = _SERVERS["words"]


@dataclass(frozen=True)
class Entry:
    """A server of servers.toml, which says what each of these is."""

    name: str
    command: str
    needs: Sequence[str] = ()
    speaks: Sequence[Speaks] = ("http",)
    tls: str = ""
    access_log: str = ""
    program: str = ""
    idle: bool = False

    def contestant(self) -> Contestant:
        """Return its contestant, which is missing if something is not installed."""
        if self.program:
            return golang.contestant(self.name)
        return Contestant(self.name, builds.not_installed(self.needs) or builds.missing(self.name))

    def refuses(self, case: Case) -> str | None:
        """Say why the server is not for this case; None if it is."""
        if self.program and case.app != PAGES:
            return f"{self.name} serves no application in Python"
        if case.access_log and not self.access_log:
            return f"{self.name} is not measured with an access log"
        return None if case.speaks in self.speaks else f"{self.name} is not measured with {case.speaks}"

    def start(self, case: Case) -> list[str]:
        added = (self.tls if case.speaks == "tls" else "", self.access_log if case.access_log else "")
        made, key = certificate() if case.speaks == "tls" else ("", "")
        words = {**WORDS, "APP": case.app, "PORT": free_port(), "CERTIFICATE": made, "KEY": key}
        text = filled(filled(" ".join((self.command, *added)), words), words)  # the words of the table have some, too
        program = [golang.program(self.program)] if self.program else [sys.executable, "-m"]
        return [*program, *text.split()]


ENTRIES: Mapping[str, Entry] = {entry["name"]: Entry(**entry) for entry in _SERVERS["server"]}


def free_port() -> int:
    """Return a port on which no socket listens at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def filled(template: str, values: Mapping[str, object]) -> str:
    """Return a template with its values. KeyError if it asks for one that is not there."""
    return re.sub(r"@([A-Z]+)@", lambda found: str(values[found[1]]), template)


@functools.cache
def certificate() -> tuple[Path, Path]:
    """Make a self-signed certificate of ECDSA, P-256, and its key, with the command `openssl`; once in a run."""
    made, key = processes.scratch() / "cert.pem", processes.scratch() / "key.pem"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    command = [tool("openssl"), "req", "-x509", *curve, "-nodes", "-keyout", str(key), "-out", str(made), "-days", "2"]
    processes.output([*command, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"])
    return made, key


def serving(entry: Entry, case: Case) -> AbstractContextManager[Server]:
    around = builds.surroundings(entry.name, neutral=case.neutral)
    logs = not case.access_log
    return answering(case, entry.start(case), core=processes.SERVER_CORE, environment=around, heeds_logs=logs)


@contextmanager
def answering(case: Case, command: Sequence[str], **how: Any) -> Iterator[Server]:
    """Start a server, and yield it when it has answered correctly; `how` is of `running`. ContestantError if not."""
    with running(command, **how) as server:
        _await_answer(server, case)
        yield server


def _await_answer(server: Server, case: Case) -> None:
    for _ in attempts(START, 0.05):
        try:
            ask(server.port, case)
            return
        except (OSError, HTTPException, RuntimeError, ContestantError) as error:
            trouble: Exception = error
        # granian reports its port before its worker listens; nothing else is tried again
        if not isinstance(getattr(trouble, "reason", trouble), ConnectionRefusedError):
            break
    raise ContestantError(f"{trouble}\n{''.join(server.output)}") from trouble


def ask(port: int, case: Case) -> None:
    """Ask for what this case asks for. ContestantError if the answer is another."""
    if case.speaks == "websocket":
        with Crowd(port, WEBSOCKET) as crowd:
            crowd.open(1)
        return
    url, data = case.url(port), bytes(65536) if case.path == "/upload" else None
    with urllib.request.urlopen(url, data, timeout=START, context=unverified()) as response:
        found = response.read()
    if found != (body := b"65536" if data else ANSWERS[case.app][case.path]):
        raise ContestantError(f"{url} answers {len(found)} bytes, {found[:80]!r}, and not {body[:80]!r}")


def load(server: Server, case: Case, seconds: int) -> client.Requests:
    """Load a server for `seconds`, from a core of its own. ContestantError if anything but the answer comes."""
    before = Usage.of(server.pid).cpu
    if case.speaks == "websocket":
        done = client.echoed(server.port, case.connections, case.message, seconds)
    else:
        script = ["-s", str(client.SOURCES / case.script)] if case.script else []
        options = [*script, *(f"-H{header}" for header in case.headers)]
        done = client.requested(case.url(server.port), case.connections, seconds, options)
    return replace(done, cpu=Usage.of(server.pid).cpu - before)
