"""The benchmark `instructions`: requests to a server that callgrind counts."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped,unused-ignore]

from ..report import RESULTS
from ..servers import Server, attempts, deadlined_command, running
from . import builds, client
from .contest import Benchmark, Contestant, ContestantError, table
from .crowd import HELLO, Crowd, Greeting
from .processes import SERVER_CORE
from .web_servers import WORDS

KEPT = RESULTS / "callgrind"

# seconds to start under callgrind, on a busy machine
PATIENCE = 180.0

# the function whose call makes callgrind write its counters and reset them; counted.py calls it for /mark
_MARK = "getloadavg"
_COUNT = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A case of instructions.toml, which says what each of these is."""

    app: str
    http: str
    connections: int = 1
    loop: str = "trio"
    deadlines: bool = True

    @property
    def needs(self) -> tuple[str, ...]:
        return self.http, self.loop, *(() if self.app == "hello" else ("starlette",))

    @property
    def greeting(self) -> Greeting:
        return HELLO if self.app == "hello" else Greeting(HELLO.request, 200, b'{"message":"Hello, world!"}')

    @property
    def command(self) -> list[str]:
        # the thread that watches for stalls goes by the real clock
        words = f"--stall-log off --http {self.http} --loop {self.loop} {'' if self.deadlines else WORDS['OFF']}"
        return deadlined_command(f"loadtest.peers.counted.counted:{self.app}", "--no-access-log", *words.split())


CASES: Mapping[str, Case] = {name: Case(**case) for name, case in table("instructions.toml").items()}


class Instructions(Benchmark):
    asked: Mapping[str, Case] = CASES

    def contestants(self) -> Sequence[Contestant]:
        absent = None if shutil.which("valgrind") else "valgrind is not installed (on Debian: apt-get install valgrind)"
        return [Contestant(name, absent or builds.missing(name)) for name in (builds.INSTALLED, builds.PURE)]

    def skips(self, contestant: str, case: str) -> str | None:
        return builds.not_installed(self.asked[case].needs)

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        asked = self.asked[case]
        files = KEPT / re.sub(r"\W+", "-", f"{contestant} {case}").strip("-")
        shutil.rmtree(files, ignore_errors=True)
        files.mkdir(parents=True)
        callgrind = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={files}/out",
                     f"--dump-before={_MARK}"]  # fmt: skip
        clock = client.compiled(client.SOURCES / "slow_clock.c", flags=("-shared", "-fPIC"))
        around = {**os.environ, **builds.environment(contestant), "PYTHONHASHSEED": "0", "LD_PRELOAD": str(clock)}
        with running([*callgrind, *asked.command], core=SERVER_CORE, environment=around, patience=PATIENCE) as server:
            self._load(server, asked)
        _, few, many = (_count(files / f"out.{mark}") for mark in (1, 2, 3))
        _, second, third = self.stated["runs"]
        return {"instructions": (many - few) / (third - second)}

    def _load(self, server: Server, asked: Case) -> None:
        with Crowd(server.port, asked.greeting) as crowd:
            clients = crowd.connect(asked.connections)
            for requests in self.stated["runs"]:
                for _ in range(requests // asked.connections):
                    _ask(server, crowd, clients)
                _wait_until(server, psutil.STATUS_SLEEPING)
                crowd.send(clients[:1], HELLO.request.replace(b"/", b"/mark", 1))
                crowd.receive(clients[:1])


def _ask(server: Server, crowd: Crowd, clients: Sequence[socket.socket]) -> None:
    """Send a request on every connection at once, and read the answers."""
    _wait_until(server, psutil.STATUS_SLEEPING)
    if len(clients) > 1:
        os.kill(server.pid, signal.SIGSTOP)
        _wait_until(server, psutil.STATUS_STOPPED)
    crowd.send(clients)
    os.kill(server.pid, signal.SIGCONT)
    crowd.receive(clients)


def _wait_until(server: Server, wanted: str) -> None:
    """Return when the process is in this state. ContestantError if it ends, or does not come to it."""
    process = psutil.Process(server.pid)
    for _ in attempts(PATIENCE, 0.0002):
        if (state := process.status()) == wanted:
            return
        if state == psutil.STATUS_ZOMBIE:
            break
    raise ContestantError(f"the server is {state}, and does not come to be {wanted}")


def _count(file: Path) -> int:
    """Return the instructions up to a mark. ContestantError if callgrind did not write them."""
    found = _COUNT.search(file.read_text(encoding="utf-8")) if file.exists() else None
    if found is None:
        raise ContestantError(f"callgrind wrote no counters to {file}")
    return int(found[1])
