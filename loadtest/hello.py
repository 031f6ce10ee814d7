"""Requests per second of a hello-world application, beside uvicorn with the same parser (h11).

Each server has core 0 to itself and wrk has core 1. The servers take turns, several times, so that what the machine
does beside meets both. Both write no access log.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from .report import console, save, show, spread
from .servers import deadlined_command, pin, running, tool, uvicorn_command

APP = "loadtest.apps:hello"
SERVER_CORE = 0
WRK_CORE = 1

_RATE = re.compile(r"Requests/sec:\s+([\d.]+)")
_TROUBLE = re.compile(r"Non-2xx.*|Socket errors:.*")

# name, and the command that starts it
CONTESTANTS = {
    "deadlined": deadlined_command(APP, "--no-access-log"),
    "uvicorn h11 asyncio": uvicorn_command(APP),
}


class TroubleError(Exception):
    """wrk saw errors: the figure would be worth nothing."""


@dataclass(frozen=True)
class Load:
    """How wrk is run, and how often each server is measured."""

    seconds: int = 5
    connections: int = 64
    repetitions: int = 3


def measure(command: list[str], load: Load) -> float:
    """Requests per second of a server that is started for it, after a second of warming up."""
    with running(command, core=SERVER_CORE) as server:
        _wrk(server.url, load.connections, 1)
        return _wrk(server.url, load.connections, load.seconds)


def _wrk(url: str, connections: int, seconds: int) -> float:
    process = subprocess.Popen(
        [tool("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", url], stdout=subprocess.PIPE, text=True
    )
    pin(process.pid, WRK_CORE)
    output = process.communicate(timeout=seconds + 30)[0]
    rate, trouble = _RATE.search(output), _TROUBLE.search(output)
    if process.returncode or rate is None or trouble is not None:
        raise TroubleError(trouble[0] if trouble else f"wrk failed:\n{output}")
    return float(rate[1])


def run(load: Load, at_least: float | None) -> bool:
    """Measure all in turns, a table and a file; whether the ratio is at least as asked."""
    rates: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for repetition in range(load.repetitions):
        for name, command in CONTESTANTS.items():
            rates[name].append(measure(command, load))
            console.print(f"{repetition + 1}/{load.repetitions} {name}: {rates[name][-1]:,.0f} req/s")
    found = {name: spread(values) for name, values in rates.items()}
    ours, theirs = (found[name]["median"] for name in CONTESTANTS)
    ratio = ours / theirs
    rows = [
        (
            name,
            f"{values['median']:,.0f}",
            f"{values['least']:,.0f} to {values['most']:,.0f}",
            f"{values['median'] / theirs:.2f}",
        )
        for name, values in found.items()
    ]
    title = f"Hello world over ASGI, one core, wrk with {load.connections} connections, {load.seconds} s each"
    show(title, ("server", "req/s, median", "least to most", "ratio"), rows)
    console.print(f"ratio deadlined : uvicorn = {ratio:.2f}")
    good = at_least is None or ratio >= at_least
    save("hello", {"rates": rates, "ratio": ratio, "at_least": at_least, "good": good})
    return good
