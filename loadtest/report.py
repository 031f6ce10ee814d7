"""Tables for people, JSON for programs."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import deadlined
from deadlined.timers import COMPILED

RESULTS = Path(__file__).resolve().parent / "results"

# a pipe or a file has no width of its own
console = Console(width=None if sys.stdout.isatty() else 120)


def machine() -> dict[str, Any]:
    """What a figure means nothing without."""
    return {
        "deadlined": deadlined.__version__,
        "timers": "compiled" if COMPILED else "pure Python",
        "python": platform.python_version(),
        # how fast it is depends on who built it
        "python build": f"{platform.python_build()[1]}, {platform.python_compiler()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "malloc": malloc(),
    }


def malloc(environment: Mapping[str, str] = os.environ) -> str:
    """What the environment says about the C library's allocator: it alone can make an event loop a third faster."""
    told = {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith("MALLOC_") or name in ("GLIBC_TUNABLES", "LD_PRELOAD", "PYTHONMALLOC")
    }
    return " ".join(f"{name}={value}" for name, value in told.items()) or "defaults"


def _processor() -> str:
    # Linux tells the model here only
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def save(name: str, result: dict[str, Any], directory: Path = RESULTS) -> Path:
    """Write `result`, with the machine and the time, to `directory`/`name`.json."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}.json"
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    path.write_text(json.dumps({"at": stamp, "machine": machine(), **result}, indent=2) + "\n", encoding="utf-8")
    console.print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return path


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table: the first column to the left, the others to the right."""
    facts = machine()
    table = Table(title=title, caption=f"Python {facts['python']}, timers {facts['timers']}, {facts['cores']} cores")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number == 0)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """How values are distributed; all 0 if there are none."""
    ordered = sorted(values) or [0.0]
    last = len(ordered) - 1
    points = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: ordered[round(point * last)] for name, point in points.items()}
