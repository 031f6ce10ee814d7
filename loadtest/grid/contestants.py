"""The contestants, as contestants.toml has them; starts and stops each with its whole family of processes.

Facts      Some servers fork, some exec, and some report success before they listen, or never. A terminal sends Ctrl-C
           to every process of its group.
Hazard     A worker that outlives its server keeps the port and its clients; a contestant that does not start would be
           graded by whatever else listens at its port.
Answer     Each has a session of its own, a new directory, and a port at which nobody listened before. It has started
           when it answers an honest request and still runs. In the end its whole group is killed.
Cost       A second for each, one after the other.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from ..bench import golang
from ..bench.web_servers import filled, free_port
from ..servers import ROOT, attempts, told_version
from ..target import Target, UnusableTargetError, ask, resolve

# seconds to start, and to stop when asked to
START = 30.0
STOP = 3.0
# seconds between two looks
_LOOK = 0.05
# characters of a server's last output that a failure quotes
_QUOTED = 300

# what a program prints its version with
_VERSION = {"nginx": "-v", "apache2": "-v", "caddy": "version", "haproxy": "-v", "node": "--version"}

Settings = Literal["defaults", "best"]
Needs = Literal["python", "program", "go"]


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the best settings: as it is written, and why."""

    text: str
    reason: str


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server of contestants.toml, which says what each of these is."""

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
UPSTREAM = "@PYTHON@ -m uvicorn @ASGI@ --no-access-log --port @PORT@ --timeout-keep-alive 90"
# unknown, missing and wrong fields are refused
SERVERS = msgspec.toml.decode(
    Path(__file__).with_name("contestants.toml").read_bytes(), type=dict[str, tuple[Server, ...]]
)["server"]
CONTESTANTS = {
    contestant.name: contestant
    for server in SERVERS
    for contestant in (Contestant(server, "defaults"), Contestant(server, "best"))
}


class StartError(Exception):
    """A contestant has not started; why, in a few words."""


def missing(server: Server) -> str:
    """Return what is not installed; "" if all is there."""
    if server.needs == "go":
        return "" if golang.toolchain() else golang.MISSING
    if server.needs == "program":
        return "" if shutil.which(server.package) else f"not installed (apt-get install {server.debian})"
    try:
        importlib.metadata.version(server.package)
    except importlib.metadata.PackageNotFoundError:
        return f"not installed (pip install {server.package})"
    return ""


def version(server: Server) -> str:
    """Return the version of an installed server."""
    if server.needs == "go":
        return golang.version().removeprefix("go")
    if server.needs == "python":
        return importlib.metadata.version(server.package)
    return told_version(server.package, _VERSION[server.package])


class Running:
    """A contestant that runs. `target` is what to check."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self._process = process
        self._log = log
        self._port = port
        self.target: Target

    def wait(self) -> None:
        """Return when it answers; StartError if it has ended, or answers nothing within START."""
        for _ in attempts(START, _LOOK):
            reason = ""
            try:
                self.target = resolve(f"http://127.0.0.1:{self._port}/")
                ask(self.target)
            except UnusableTargetError as error:
                reason = str(error)
            if died := self.died():
                raise StartError(died)
            if not reason:
                return
        raise StartError(f"not within {START:g} s: {reason} {self._said()}".rstrip())

    def died(self) -> str:
        """Return how it has ended by itself; "" if it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"it ended with {how} {self._said()}".rstrip()

    def stop(self) -> None:
        """Ask it to end, kill what is left of its group, and return when that is gone."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP)
        with suppress(ProcessLookupError):
            for _ in attempts(STOP, _LOOK):
                os.killpg(self._process.pid, signal.SIGKILL)
                # the others are init's children then: they are gone when the group is
                self._process.wait()

    def _said(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip()
        return f"({' '.join(lines[-_QUOTED:].split())})" if lines else ""


@contextmanager
def started(contestant: Contestant) -> Iterator[Running]:
    """Run a contestant, and the application behind it if it is a proxy. StartError if one does not start."""
    server = contestant.server
    if reason := missing(server):
        raise StartError(reason)
    with ExitStack() as stack:
        upstream = free_port() if server.proxy else 0
        if upstream:
            stack.enter_context(_run(UPSTREAM, upstream))
        settings = [option.text for option in contestant.options]
        yield stack.enter_context(_run(server.command, free_port(), server.config, settings, upstream))


@contextmanager
def _run(
    command: str, port: int, config: str = "", settings: Sequence[str] = (), upstream: int = 0
) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="loadtest-grid-") as name:
        directory = Path(name)
        # some servers' workers are other users
        directory.chmod(0o755)
        values = {
            "PYTHON": sys.executable, "HERE": Path(__file__).parent, "DIRECTORY": name,
            "CONFIG": directory / "config", "PORT": port, "UPSTREAM": upstream,
            "ASGI": "loadtest.grid.served:asgi", "WSGI": "loadtest.grid.served:wsgi",
            "OPTIONS": ("\n" if config else " ").join(settings),
            "GO": golang.program("slow") if "@GO@" in command else "",
        }  # fmt: skip
        (directory / "config").write_text(filled(config, values), encoding="utf-8")
        log = directory / "output"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise StartError(f"port {port} is taken")
        with log.open("wb") as output:
            # caddy keeps files there
            around = {**os.environ, "XDG_CONFIG_HOME": name, "XDG_DATA_HOME": name}
            process = subprocess.Popen(filled(command, values).split(), cwd=ROOT, env=around, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        running = Running(process, log, port)
        try:
            running.wait()
            yield running
        finally:
            running.stop()
