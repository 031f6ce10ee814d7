"""The echo client: `loadtest/clients/echo.c`, compiled when it is first needed.

A client in Python would be slower than the servers and limit their rates. The binary's name has the digest of its
source, so an edited source is compiled again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ..report import RESULTS
from ..servers import ROOT, tool
from . import processes

SOURCE: Final = ROOT / "loadtest" / "clients" / "echo.c"
BINARIES: Final = RESULTS / "clients"

# seconds beyond the measurement, for connecting and for noticing a stall
_PATIENCE: Final = 30.0


def compiled(source: Path = SOURCE, directory: Path = BINARIES, flags: Sequence[str] = ()) -> Path:
    """Compile a C source unless that is done already, and return the binary's path.

    ToolMissingError if there is no C compiler; ContestantError with the compiler's output if it fails.
    """
    binary = directory / f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if not binary.exists():
        compiler = tool("cc", "gcc")
        directory.mkdir(parents=True, exist_ok=True)
        # under another name first: another run may be starting it
        fresh = binary.with_suffix(".new")
        processes.output([compiler, "-O2", "-Wall", "-Wextra", "-Werror", *flags, "-o", str(fresh), str(source)])
        fresh.replace(binary)
    return binary


def exchange(port: int, pid: int, connections: int, warm: float, seconds: float) -> Mapping[str, float]:
    """Exchange messages with an echo server. Returns `messages`, `seconds`, and the `cpu` seconds of process `pid`.

    ContestantError if the server closes, stalls, or sends back anything but what it was sent.
    """
    command = [str(compiled()), *map(str, (port, connections, warm, seconds, pid))]
    return processes.run(command, core=processes.CLIENT_CORE, seconds=warm + seconds + _PATIENCE)
