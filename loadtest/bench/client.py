"""The clients of the benchmarks of servers: `echo.c`, `websocket.c` and wrk, each on a core of its own.

A client in Python would be slower than the servers and limit their rates. Those in C are of `loadtest/clients/` and
compiled when they are first needed. A binary's name has the digest of its source and of the headers beside it, so an
edited one is compiled again.
"""

from __future__ import annotations

import hashlib
import re
import resource
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from ..report import RESULTS
from ..servers import ROOT, tool
from . import processes
from .contest import ContestantError

SOURCES = ROOT / "loadtest" / "clients"
BINARIES = RESULTS / "clients"

# seconds beyond the measurement, for connecting and for noticing a stall
_PATIENCE = 30.0

_DONE = re.compile(r"^\s*(\d+) requests in ([\d.]+)(us|ms|s|m),", re.MULTILINE)
_LATENCY = re.compile(r"^\s*(50|99)%\s+([\d.]+)(us|ms|s|m)$", re.MULTILINE)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
# wrk prints these lines only if there were errors
_TROUBLE = re.compile(r"^\s*(Non-2xx.*|Socket errors:.*)$", re.MULTILINE)


def compiled(source: Path = SOURCES / "echo.c", directory: Path = BINARIES, flags: Sequence[str] = ()) -> Path:
    """Compile a C source unless that is done already, and return the binary's path.

    ToolMissingError if there is no C compiler; ContestantError with the compiler's output if it fails.
    """
    text = b"".join(path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h"))))
    binary = directory / f"{source.stem}-{hashlib.sha256(text).hexdigest()[:16]}"
    if not binary.exists():
        compiler = tool("cc", "gcc")
        directory.mkdir(parents=True, exist_ok=True)
        # under another name first: another run may be starting it
        fresh = binary.with_suffix(".new")
        processes.output([compiler, "-O2", "-Wall", "-Wextra", "-Werror", *flags, "-o", str(fresh), str(source)])
        fresh.replace(binary)
    return binary


def exchange(port: int, pid: int, connections: int, warm: float, seconds: float, pause: float) -> Requests:
    """Exchange messages with an echo server, whose process is `pid`.

    `pause`: the seconds between an answer and the next message, 0 where there is more than one connection.

    ContestantError if the server closes, stalls, or sends back anything but what it was sent.
    """
    return _run("echo.c", port, connections, warm, seconds, pause, pid, seconds=warm + seconds)


def _run(source: str, *arguments: str | float, seconds: float) -> Requests:
    """Run a client in C that takes so many seconds, and return what it says."""
    command = [str(compiled(SOURCES / source)), *map(str, arguments)]
    done = processes.run(command, core=processes.CLIENT_CORE, seconds=seconds + _PATIENCE)
    return Requests(int(done["messages"]), done["seconds"], cpu=done.get("cpu", 0.0))


@dataclass(frozen=True)
class Requests:
    """The number of answered requests, the seconds they took, and the latency in seconds. `wakes`: how often wrk has
    slept until something came; `cpu`: the seconds of CPU time that the server has used. ContestantError for none."""

    number: int
    seconds: float
    p50: float = 0.0
    p99: float = 0.0
    wakes: int = 0
    cpu: float = 0.0

    def __post_init__(self) -> None:
        if not self.number:
            raise ContestantError(f"nothing was answered in {self.seconds:g} s")

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.number / self.seconds

    @property
    def busy(self) -> float:
        """Per cent of a core that the server has used."""
        return self.cpu / self.seconds * 100

    @property
    def figures(self) -> dict[str, float]:
        """The rate, the microseconds of CPU time per request, and how busy the server was."""
        return {"rate": self.rate, "cpu": self.cpu / self.number * 1e6, "busy": self.busy}

    @classmethod
    def parse(cls, output: str) -> Self:
        """Parse wrk's output. ContestantError if it reports any error, because the figure would mean nothing."""
        done, trouble = _DONE.search(output), _TROUBLE.findall(output)
        if done is None or trouble or done[1] == "0":
            raise ContestantError(f"{'; '.join(trouble) or 'wrk counted nothing'}\n{output}")
        latencies = {percent: float(value) * _SECONDS[unit] for percent, value, unit in _LATENCY.findall(output)}
        seconds = float(done[2]) * _SECONDS[done[3]]
        return cls(int(done[1]), seconds, latencies.get("50", 0.0), latencies.get("99", 0.0))


def requested(url: str, connections: int, seconds: int, options: Sequence[str] = ()) -> Requests:
    """Request `url` repeatedly for `seconds`. ContestantError if anything but an answer of 2xx or 3xx comes."""
    command = [tool("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "5s", *options, url]
    before = _slept()
    printed, _ = processes.output(command, core=processes.CLIENT_CORE, seconds=seconds + _PATIENCE)
    return replace(Requests.parse(printed), wakes=_slept() - before)


def _slept() -> int:
    """Return the voluntary context switches of the children that have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw


def echoed(port: int, connections: int, message: tuple[int, str], seconds: float) -> Requests:
    """Let a server echo messages over websockets, each when the echo of the last has come.

    `message`: bytes, and "text" or "binary". ContestantError if anything but the echo comes.
    """
    size, kind = message
    return _run("websocket.c", port, connections, size, kind, 0, seconds, seconds=seconds)
