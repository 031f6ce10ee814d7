"""The figures of an earlier run, so that a further one adds its repetitions to them.

Hazard     Figures of two machines, or of two builds, have no common median.
Answer     They are refused, before anything is measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..report import machine
from .contest import Results

Earlier = Mapping[str, Any]


def recall(path: Path) -> Earlier:
    """What `bench` has left in `path`; nothing if there is no such file.

    ValueError if it was measured quickly, on another machine, or with another build of Python or deadlined.
    """
    if not path.exists():
        return {}
    read: Earlier = json.loads(path.read_text(encoding="utf-8"))
    if read["quick"]:
        raise ValueError(f"{path} is of a quick run, whose figures mean nothing: there is nothing to add to")
    here = machine()
    if others := [f"{name} {read['machine'].get(name)!r}" for name in here if read["machine"].get(name) != here[name]]:
        raise ValueError(f"{path} was measured with {', '.join(others)}, which is another now: run without --add")
    return read


def include(results: Results, earlier: Earlier, cases: Sequence[str]) -> None:
    """Put the earlier figures before those of now, and what was not measured in either run beside it. `cases`: all that
    the benchmark has, in their order."""
    now = {(contestant, case) for contestant, case, _ in results.values}
    known = {contestant.name for contestant in results.contestants}
    for figure in earlier.get("figures", ()):
        key = figure["contestant"], figure["case"], figure["metric"]
        if key[0] in known and key[1] in cases and key[2] in results.metrics:
            results.values[key] = figure["values"] + results.values.get(key, [])
            # it was not measured now, but it was
            results.skips.pop(key[:2], None)
    for entry in earlier.get("not_measured", ()):
        if entry["case"] not in results.cases:
            results.skips[entry["contestant"], entry["case"]] = entry["why"]
    for entry in earlier.get("failures", ()):
        if (pair := (entry["contestant"], entry["case"])) not in now:
            results.failures.setdefault(pair, entry["output"])
    results.cases = [case for case in cases if case in results.cases or case in earlier.get("cases", ())]
