"""Instructions that a request costs, counted by callgrind: the same figure on a busy machine and on an idle one.

Facts      Callgrind counts every instruction of a process and makes it about fifty times as slow. The system calls
           themselves are not counted, only what leads to them.
Hazard     Start-up costs as much as thousands of requests and varies by more than one. What a server does by the clock
           it would do too often. How many requests it finds ready depends on when they arrive.
Answer     The application marks the counters from inside, and the difference of two runs of unequal length is divided
           by the difference of their requests. A preloaded clock runs as slowly as the server. A request is sent when
           the server sleeps; a burst is sent while it is stopped, so that one poll finds all of it.
Cost       A figure takes about 20 seconds. Instructions are not time: cache misses and system calls are missing.

Two counts of one build differ by less than 0.3 %. What callgrind wrote is kept beside the results, for
`callgrind_annotate`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from ..report import RESULTS
from ..servers import ROOT, Server, running
from . import builds, client
from .contest import Benchmark, Contestant, ContestantError, Metric
from .processes import SERVER_CORE
from .web_servers import DEADLINES_OFF

APPS: Final = ROOT / "loadtest" / "peers" / "counted"
CLOCK: Final = ROOT / "loadtest" / "clients" / "slow_clock.c"
KEPT: Final = RESULTS / "callgrind"

# the connections of a burst
BURST: Final = 64
# seconds to start under callgrind, on a busy machine; and for one answer
PATIENCE: Final = 180.0
ANSWER: Final = 60.0

# the function whose call makes callgrind write its counters and reset them; counted.py calls it for /mark
_MARK: Final = "getloadavg"
_COUNT: Final = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)

# what a case may need that an environment may lack
MODULES: Final = {"httptools", "starlette", "uvloop"}

# asked of an environment that is given with --python
_QUESTION: Final = (
    "import json; from importlib.util import find_spec; from deadlined.timers import COMPILED; "
    "print(json.dumps([COMPILED, *(name for name in ('httptools', 'starlette', 'uvloop') if find_spec(name))]))"
)


@dataclass(frozen=True)
class Case:
    """An application of counted.py, the parser, how many connections ask at once, the event loop, other options."""

    app: str
    parser: str
    connections: int = 1
    loop: str = "trio"
    options: Sequence[str] = ()

    @property
    def needs(self) -> set[str]:
        """The modules that this case cannot do without."""
        app = "hello" if self.app == "hello" else "starlette"
        return {app, self.parser, self.loop} & MODULES


CASES: Final[Mapping[str, Case]] = {
    "hello, h11": Case("hello", "h11"),
    "hello, httptools": Case("hello", "httptools"),
    "Starlette JSON": Case("starlette", "httptools"),
    "hello, h11, 64 at once": Case("hello", "h11", BURST),
    "hello, httptools, 64 at once": Case("hello", "httptools", BURST),
    "hello, httptools, 64 at once, deadlines off": Case("hello", "httptools", BURST, options=DEADLINES_OFF.split()),
    "Starlette JSON, 64 at once": Case("starlette", "httptools", BURST),
    "hello, httptools, 64 at once, asyncio": Case("hello", "httptools", BURST, "asyncio"),
    "hello, httptools, 64 at once, uvloop": Case("hello", "httptools", BURST, "uvloop"),
    "Starlette JSON, asyncio": Case("starlette", "httptools", 1, "asyncio"),
    "Starlette JSON, uvloop": Case("starlette", "httptools", 1, "uvloop"),
    "Starlette JSON, 64 at once, asyncio": Case("starlette", "httptools", BURST, "asyncio"),
    "Starlette JSON, 64 at once, uvloop": Case("starlette", "httptools", BURST, "uvloop"),
    "Starlette JSON after a checkpoint, 64 at once": Case("pausing", "httptools", BURST),
    "Starlette JSON after a checkpoint, 64 at once, asyncio": Case("pausing", "httptools", BURST, "asyncio"),
    "Starlette JSON after a checkpoint, 64 at once, uvloop": Case("pausing", "httptools", BURST, "uvloop"),
}


@dataclass(frozen=True)
class Build:
    """A build of deadlined: how it is named, its Python, what else the environment must say, and its modules."""

    name: str
    python: str
    environment: Mapping[str, str]
    modules: frozenset[str]
    missing: str | None = None
    given: bool = False


def here() -> list[Build]:
    """Return the builds of this environment, compiled and pure."""
    modules = frozenset(name for name in MODULES if find_spec(name))
    return [
        Build(found.name, sys.executable, builds.environment(found.name), modules, found.missing)
        for found in builds.contestants()
    ]


def build_of(python: str) -> Build:
    """Return the build that another environment has. ValueError if there is none."""
    try:
        done = subprocess.run([python, "-c", _QUESTION], cwd=APPS, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ValueError(f"{python}: {error.strerror}") from error
    if done.returncode:
        raise ValueError(f"{python} cannot import deadlined:\n{done.stderr}")
    compiled, *modules = json.loads(done.stdout)
    kind = "compiled" if compiled else "pure"
    return Build(f"{builds.INSTALLED} ({kind}) of {python}", python, {}, frozenset(modules), given=True)


class Instructions(Benchmark):
    """`runs`: the requests before the first mark, between the first and the second, and before the third."""

    name = "instructions"
    title = "Instructions of a request, by callgrind"
    metrics: Mapping[str, Metric] = {"instructions": Metric("per request", "less")}
    repetitions = 1

    def __init__(
        self,
        runs: tuple[int, int, int] = (320, 192, 1216),
        cases: Sequence[str] = tuple(CASES),
        pythons: Sequence[str] = (),
    ) -> None:
        self._runs = runs
        self._cases = cases
        self._pythons = pythons
        self._builds = {build.name: build for build in (*here(), *map(build_of, pythons))}

    def contestants(self) -> Sequence[Contestant]:
        absent = None if shutil.which("valgrind") else "valgrind is not installed (on Debian: apt-get install valgrind)"
        return [Contestant(build.name, absent or build.missing, build.given) for build in self._builds.values()]

    def cases(self) -> Sequence[str]:
        return self._cases

    def skips(self, contestant: str, case: str) -> str | None:
        absent = CASES[case].needs - self._builds[contestant].modules
        return f"not installed (pip install {' '.join(sorted(absent))})" if absent else None

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        build, asked = self._builds[contestant], CASES[case]
        files = _fresh(KEPT / _slug(f"{contestant} {case}"))
        command = [*_callgrind(files), *_serve(build.python, asked)]
        around = {**os.environ, **build.environment, "PYTHONHASHSEED": "0", "LD_PRELOAD": str(_clock())}
        with running(command, core=SERVER_CORE, environment=around, directory=APPS, patience=PATIENCE) as server:
            self._load(server, asked.connections)
        _, few, many = (_count(files / f"out.{mark}") for mark in (1, 2, 3))
        return {"instructions": (many - few) / (self._runs[2] - self._runs[1])}

    def _load(self, server: Server, connections: int) -> None:
        with ExitStack() as stack:
            made = [HTTPConnection("127.0.0.1", server.port, timeout=ANSWER) for _ in range(connections)]
            clients = [stack.enter_context(closing(connection)) for connection in made]
            for requests in self._runs:
                for _ in range(requests // connections):
                    _ask(server, clients)
                _wait_for_state(server.pid, "S")
                send(clients[:1], "/mark")
                receive(clients[:1])

    def quick(self) -> Self:
        return type(self)((64, 64, 128), ("hello, h11",), self._pythons)

    def beside(self, pythons: Sequence[str]) -> Self:
        return type(self)(self._runs, self._cases, pythons)


def _ask(server: Server, clients: Sequence[HTTPConnection]) -> None:
    """Send a request on every connection at once, and read the answers."""
    _wait_for_state(server.pid, "S")
    if len(clients) > 1:
        os.kill(server.pid, signal.SIGSTOP)
        _wait_for_state(server.pid, "T")
    send(clients, "/")
    os.kill(server.pid, signal.SIGCONT)
    receive(clients)


def send(clients: Sequence[HTTPConnection], path: str) -> None:
    """Send a request on each connection, with the one field that it must have."""
    for connection in clients:
        connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", "127.0.0.1")
        connection.endheaders()


def receive(clients: Sequence[HTTPConnection]) -> None:
    """Read one whole answer from each connection. ContestantError if it is not 200 with a length, or is cut."""
    for connection in clients:
        try:
            answer = connection.getresponse()
            answer.read()
        except HTTPException as error:
            raise ContestantError(
                f"the server closed the connection before the end of its answer: {error!r}"
            ) from error
        if answer.status != 200 or answer.headers["content-length"] is None:
            raise ContestantError(f"the server answered {answer.status} with {dict(answer.headers)}")


def _wait_for_state(pid: int, wanted: str) -> None:
    """Return when Linux shows this state of the process: S sleeping, T stopped."""
    stat = Path(f"/proc/{pid}/stat")
    end = time.monotonic() + PATIENCE
    # the command's name, the second field, may hold spaces and ends with the last bracket
    while (state := stat.read_text().rpartition(")")[2].split()[0]) != wanted:
        if state == "Z" or time.monotonic() > end:
            raise ContestantError(f"the server is in state {state} and does not come to {wanted}")
        time.sleep(0.0002)


def _callgrind(files: Path) -> list[str]:
    return ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={files / 'out'}", f"--dump-before={_MARK}"]


def _serve(python: str, case: Case) -> list[str]:
    options = ["--no-access-log", "--http", case.parser, "--host", "127.0.0.1", "--port", "0"]
    if case.loop != "trio":
        options += ["--loop", case.loop]
    return [python, "-m", "deadlined", "serve", f"counted:{case.app}", *options, *case.options]


def _clock() -> Path:
    return client.compiled(CLOCK, flags=("-shared", "-fPIC"))


def _fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _slug(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-")


def _count(file: Path) -> int:
    """Return the instructions up to a mark. ContestantError if callgrind did not write them."""
    found = _COUNT.search(file.read_text(encoding="utf-8")) if file.exists() else None
    if found is None:
        raise ContestantError(f"callgrind wrote no counters to {file}")
    return int(found[1])


BENCHMARK = Instructions()
