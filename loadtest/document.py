"""Write a document's tables from the results of `bench`, so that every figure in it was measured.

The text between two comments of a Markdown file is written by this module:

    <!-- table echo | 64 connections | rate = messages/s; cpu = CPU, µs -->  medians: a row per contestant
    <!-- targets reset heap -->                                             targets and what was found
    <!-- setup reset heap -->                                               the machine and the repetitions
    <!-- end -->                                                            after each of them

The rest of the file stays.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .bench.tables import number

Result = Mapping[str, Any]

_BLOCK = re.compile(
    r"(?P<head><!-- (?P<kind>table|targets|setup) (?P<asked>[^>]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)

_REACHED = {True: "reached", False: "**missed**", None: "not measured"}
# of two results whose figures may stand side by side these are the same
_SAME = ("commit", "changes", "machine", "versions", "go")


class Results:
    """The result files of `bench`, each read once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[str, Result] = {}

    def of(self, name: str) -> Result:
        """Return the results of benchmark `name`. ValueError if there are none."""
        if name not in self._read:
            file = self._directory / f"bench-{name}.json"
            if not file.exists():
                raise ValueError(f"there is no {file}; run: python -m loadtest bench {name}")
            self._read[name] = json.loads(file.read_text(encoding="utf-8"))
        return self._read[name]

    def files(self) -> list[Path]:
        """Return the files that were read."""
        return [self._directory / f"bench-{name}.json" for name in self._read]

    def pictures(self) -> list[Path]:
        """Return the pictures of all benchmarks that were read."""
        return [file for name in self._read if (file := self._directory / f"bench-{name}.png").exists()]


def fill(text: str, results: Results) -> str:
    """Return `text` with every block rewritten. ValueError for a malformed block or unknown results."""

    def block(found: re.Match[str]) -> str:
        write = {"table": _table, "targets": _targets, "setup": _setup}[found["kind"]]
        return found["head"] + "\n" + "\n".join(write(found["asked"], results)) + "\n\n" + found["end"]

    filled, blocks = _BLOCK.subn(block, text)
    if blocks != text.count("<!-- end -->"):
        raise ValueError(f"{text.count('<!-- end -->')} blocks end, and {blocks} begin")
    return filled


def update(document: Path, directory: Path) -> list[Path]:
    """Rewrite a document's blocks, and return the files written.

    Its pictures are copied into `img` beside it, and the results that it was written from into a folder of its name.
    """
    results = Results(directory)
    document.write_text(fill(document.read_text(encoding="utf-8"), results), encoding="utf-8")
    pictures = document.parent / "img"
    pictures.mkdir(exist_ok=True)
    kept = document.with_suffix("")
    kept.mkdir(exist_ok=True)
    written = [Path(shutil.copy(picture, pictures / picture.name)) for picture in results.pictures()]
    return [document, *written, *(Path(shutil.copy(file, kept / file.name)) for file in results.files())]


def _table(asked: str, results: Results) -> Iterator[str]:
    name, case, columns = _parts(asked)
    result = results.of(name)
    if case not in result["cases"]:
        raise ValueError(f"bench-{name}.json has no case {case!r}, but {', '.join(result['cases'])}")
    heads = [[part.strip() for part in column.partition("=")] for column in columns.split(";")]
    metrics = [metric for metric, _, _ in heads]
    if unknown := set(metrics).difference(result["metrics"]):
        raise ValueError(f"bench-{name}.json has no metric {', '.join(sorted(unknown))}")
    yield _row("", *(head or metric for metric, _, head in heads))
    yield "|---|" + "---:|" * len(metrics)
    medians = {
        (figure["contestant"], figure["metric"]): _figure(*(figure[name] for name in ("median", "low", "high")))
        for figure in result["figures"]
        if figure["case"] == case
    }
    reasons = _reasons(result, case)
    for contestant in result["contestants"]:
        name = contestant["name"]
        cells = [medians.get((name, metric), "-") for metric in metrics]
        if contestant["missing"]:
            cells[0] = f"missing: {contestant['missing']}"
        elif name in reasons:
            cells[0] = f"{reasons[name]}" if cells[0] == "-" else f"{cells[0]}; {reasons[name]}"
        elif set(cells) == {"-"}:
            continue
        yield _row(name, *cells)


def _figure(median: float, low: float, high: float) -> str:
    """Format a median with its interval, which one start has not."""
    return number(median) + ("" if low == high else f" ({number(low)} to {number(high)})")


def _reasons(result: Result, case: str) -> dict[str, str]:
    """Return why figures of a contestant do not count, or why there are none, in a line of a table."""
    failures = [one for one in result["failures"] if one["case"] == case]
    invalid = [one for one in result["invalid"] if one["case"] == case]
    return {
        **{one["contestant"]: f"failed: {_first_line(one['output'])}" for one in failures},
        **{one["contestant"]: f"**invalid**: {one['why']}" for one in invalid},
    }


def _first_line(text: str) -> str:
    return (text.splitlines() or ["?"])[0].replace("|", "\\|")


def _targets(asked: str, results: Results) -> Iterator[str]:
    yield _row("", "wanted", "found", "")
    yield "|---|---|---:|---|"
    _require_same(asked.split(), results)
    for name in asked.split():
        for target in results.of(name)["targets"]:
            what = f"`{name}`, {target['case']}: {target['metric']}, {target['ours']}"
            against = f" : {target['theirs']}" if target["theirs"] else ""
            least, most, found = target["at_least"], target["at_most"], target["value"]
            wanted = f"≥ {number(least)}" if least is not None else f"≤ {number(most)}"
            label = "**invalid**" if target["invalid"] else _REACHED[target["reached"]]
            yield _row(what + against, wanted, "-" if found is None else _figure(found, *target["interval"]), label)


def _require_same(names: Sequence[str], results: Results) -> None:
    """ValueError if the results are not of one commit, one machine, and the same peers."""
    for key in _SAME:
        if len({json.dumps(results.of(name).get(key), sort_keys=True) for name in names}) > 1:
            what = {"machine": "on one machine, or not under the same conditions"}.get(key, f"with the same {key}")
            raise ValueError(f"{', '.join(names)} were not measured {what}")


def _setup(asked: str, results: Results) -> Iterator[str]:
    names = asked.split()
    _require_same(names, results)
    first = results.of(names[0])
    machine = first["machine"]
    yield f"{machine['processor']}, {machine['cores']} cores, governor {machine['governor']}, SMT {machine['smt']},"
    yield f"Python {machine['python']} ({machine['python build']}), Go {first['go'].removeprefix('go')}; commit"
    yield f"{(first['commit'] or 'unknown')[:10]}{' with changes' if first['dirty'] else ''}. Peers:"
    yield ", ".join(f"{name} {version}" for name, version in first["versions"].items()) + "."
    yield f"Medians of starts, and their {first['confidence']:.0%} intervals by the bootstrap. Starts:"
    yield ", ".join(f"{name} {results.of(name)['repetitions']}" for name in names) + "."


def _parts(asked: str) -> tuple[str, str, str]:
    parts = [part.strip() for part in asked.split("|")]
    if len(parts) != 3:
        raise ValueError(f"a table is asked for as NAME | CASE | METRIC = HEAD; METRIC, not as {asked!r}")
    return parts[0], parts[1], parts[2]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
