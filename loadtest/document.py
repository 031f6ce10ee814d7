"""Write a document's tables from the results of `bench`, so that every figure in it was measured.

The text between two comments of a Markdown file is written by this module:

    <!-- table echo | 64 connections | rate = messages/s; cpu = CPU, µs -->  medians: a row per contestant
    <!-- targets reset heap -->                                             targets and what was found
    <!-- setup reset heap -->                                               the machine and the repetitions
    <!-- ratios what | times theirs                                         ratios of two contestants: the heads, and
    echo | 64 connections | rate | ours | theirs = messages                 a line for each row; without `theirs` it is
    idle | idle | memory | ours | = bytes of a connection -->               the figure of ours
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

from .bench.spread import Spread
from .bench.tables import number

Result = Mapping[str, Any]

_BLOCK = re.compile(
    r"(?P<head><!-- (?P<kind>table|targets|setup|ratios) (?P<asked>[^>]+?) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
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
        write = {"table": _table, "targets": _targets, "setup": _setup, "ratios": _ratios}[found["kind"]]
        return found["head"] + "\n" + "\n".join(write(found["asked"], results)) + "\n\n" + found["end"]

    filled, blocks = _BLOCK.subn(block, text)
    if blocks != text.count("<!-- end -->"):
        raise ValueError(f"{text.count('<!-- end -->')} blocks end, and {blocks} begin")
    return filled


def update(documents: Sequence[Path], directory: Path) -> list[Path]:
    """Rewrite the blocks of documents, of all or of none, and return the files written.

    The first one's pictures are copied into `img` beside it, and the results that all were written from into a folder
    of its name.
    """
    results = Results(directory)
    filled = {document: fill(document.read_text(encoding="utf-8"), results) for document in documents}
    for document, text in filled.items():
        document.write_text(text, encoding="utf-8")
    document = documents[0]
    pictures = document.parent / "img"
    pictures.mkdir(exist_ok=True)
    kept = document.with_suffix("")
    kept.mkdir(exist_ok=True)
    written = [Path(shutil.copy(picture, pictures / picture.name)) for picture in results.pictures()]
    return [*documents, *written, *(Path(shutil.copy(file, kept / file.name)) for file in results.files())]


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


def _ratios(asked: str, results: Results) -> Iterator[str]:
    heads, *rows = (line for line in asked.splitlines() if line.strip())
    columns = [head.strip() for head in heads.split("|")]
    yield _row(*columns)
    yield "|---|" + "---:|" * (len(columns) - 1)
    found = [compared(row) for row in rows]
    _require_same([name for name, *_ in found], results)
    for name, case, metric, ours, theirs, text in found:
        yield _row(text, _ratio(results.of(name), f"bench-{name}.json", case, metric, (ours, theirs)))


def compared(row: str) -> tuple[str, str, str, str, str, str]:
    """Return benchmark, case, metric, both contestants (the second may be empty), and what the row is called."""
    places, _, text = row.partition(" = ")
    parts = [part.strip() for part in places.split("|")]
    if len(parts) != 5 or not text:
        raise ValueError(f"a ratio is asked for as NAME | CASE | METRIC | OURS | THEIRS = TEXT, not as {row!r}")
    name, case, metric, ours, theirs = parts
    return name, case, metric, ours, theirs, text.strip()


def _ratio(result: Result, file: str, case: str, metric: str, sides: tuple[str, str]) -> str:
    """Return ours divided by theirs, with its interval; ours with its unit if theirs is empty; or why there is none."""
    known = {contestant["name"]: contestant["missing"] for contestant in result["contestants"]}
    for kind, name, names in (("case", case, result["cases"]), ("metric", metric, result["metrics"])):
        if name not in names:
            raise ValueError(f"{file} has no {kind} {name!r}, but {', '.join(names)}")
    for side in filter(None, sides):
        if side not in known:
            raise ValueError(f"{file} has no contestant {side!r}, but {', '.join(known)}")
    reasons = _reasons(result, case)
    remarks = [f"{side}: {why}" for side in filter(None, sides) if (why := known[side] or reasons.get(side))]
    values = [
        [value for figure in result["figures"] for value in figure["values"]
         if (figure["contestant"], figure["case"], figure["metric"]) == (side, case, metric)]
        for side in sides
    ]  # fmt: skip
    if sides[1]:
        found, unit = Spread.of_ratio(*values), ""
    else:
        found, unit = Spread.of(values[0]) if values[0] else None, f" {result['metrics'][metric]['unit']}".rstrip()
    shown = "-" if found is None else _figure(found.median, found.low, found.high) + unit
    return "; ".join([shown, *remarks])


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
