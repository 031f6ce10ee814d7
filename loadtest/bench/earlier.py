"""The figures of an earlier run, to which another run adds its repetitions.

Figures of two machines, of two builds or of two commits have no common median, so they are refused before anything is
measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..report import machine, revision, versions
from .results import Results

Earlier = Mapping[str, Any]


def recall(path: Path, metrics: Iterable[str]) -> Earlier:
    """Read the results in `path`; empty if there is no such file.

    ValueError if they are of a quick run, of another machine, of another build of Python or deadlined, of another
    commit, of files that differ from the commit in another way, of other versions of the peers, or of other metrics.
    """
    if not path.exists():
        return {}
    read: Earlier = json.loads(path.read_text(encoding="utf-8"))
    if read["quick"]:
        raise ValueError(f"{path} is of a quick run, whose figures mean nothing: there is nothing to add to")
    if set(read["metrics"]) != set(metrics):
        raise ValueError(f"{path} has other metrics, or other sizes ({', '.join(read['metrics'])}): run without --add")
    here, then = {**machine(), **revision()}, {**read["machine"], **{name: read.get(name) for name in revision()}}
    here["versions"], then["versions"] = versions(), read.get("versions")
    if others := [f"{name} {then.get(name)!r}" for name in here if then.get(name) != here[name]]:
        raise ValueError(f"{path} was measured with {', '.join(others)}, which is another now: run without --add")
    return read


def include(results: Results, earlier: Earlier, cases: Sequence[str]) -> None:
    """Put the earlier figures before the new ones, and merge what was skipped or failed.

    `cases`: all cases of the benchmark, in order.
    """
    now = {(contestant, case) for contestant, case, _ in results.values}
    known = {contestant.name for contestant in results.contestants}
    for figure in earlier.get("figures", ()):
        key = figure["contestant"], figure["case"], figure["metric"]
        if key[0] in known and key[1] in cases and key[2] in results.metrics:
            results.values[key] = figure["values"] + results.values.get(key, [])
            # skipped now, but measured earlier
            results.skips.pop(key[:2], None)
    for entry in earlier.get("not_measured", ()):
        if entry["case"] not in results.cases:
            results.skips[entry["contestant"], entry["case"]] = entry["why"]
    for entry in earlier.get("failures", ()):
        if (pair := (entry["contestant"], entry["case"])) not in now:
            results.failures.setdefault(pair, entry["output"])
    results.cases = [case for case in cases if case in results.cases or case in earlier.get("cases", ())]
