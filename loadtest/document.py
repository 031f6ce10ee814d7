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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .bench.contest import Contestant
from .bench.results import Results

_BLOCK = re.compile(
    r"(?P<head><!-- (?P<kind>table|targets|setup|ratios) (?P<asked>[^>]+?) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)

# of two results whose figures may stand side by side these are the same
_SAME = ("commit", "changes", "machine", "versions", "go")


@dataclass(frozen=True)
class Kept:
    """A file of results: what it says of its run, and the results."""

    path: Path
    facts: Mapping[str, Any]
    results: Results

    def require(self, kind: str, name: str, known: Iterable[str]) -> None:
        """ValueError if the results do not know this name of a case, a metric or a contestant."""
        if name not in known:
            raise ValueError(f"{self.path.name} has no {kind} {name!r}, but {', '.join(known)}")


class Files(dict[str, Kept]):
    """The result files of `bench` in a directory, by benchmark; each is read when it is first asked for."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def __missing__(self, name: str) -> Kept:
        path = self._directory / f"bench-{name}.json"
        if not path.exists():
            raise ValueError(f"there is no {path}; run: python -m loadtest bench {name}")
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts.get("quick"):
            raise ValueError(f"{path} is of a quick run, whose figures mean nothing")
        self[name] = Kept(path, facts, Results.read(facts))
        return self[name]


def fill(text: str, files: Files) -> str:
    """Return `text` with every block rewritten. ValueError for a malformed block or unknown results."""

    def block(found: re.Match[str]) -> str:
        write = {"table": _table, "targets": _targets, "setup": _setup, "ratios": _ratios}[found["kind"]]
        return found["head"] + "\n" + "\n".join(write(found["asked"], files)) + "\n\n" + found["end"]

    filled, blocks = _BLOCK.subn(block, text)
    if blocks != text.count("<!-- end -->"):
        raise ValueError(f"{text.count('<!-- end -->')} blocks end, and {blocks} begin")
    return filled


def update(documents: Sequence[Path], directory: Path) -> list[Path]:
    """Rewrite the blocks of documents, of all or of none, and return the files written.

    The first one's pictures are copied into `img` beside it, and the results that all were written from into a folder
    of its name.
    """
    files = Files(directory)
    filled = {document: fill(document.read_text(encoding="utf-8"), files) for document in documents}
    for document, text in filled.items():
        document.write_text(text, encoding="utf-8")
    results = [kept.path for kept in files.values()]
    pictures = [picture for path in results if (picture := path.with_suffix(".png")).exists()]
    first = documents[0]
    return [*documents, *_copied(pictures, first.parent / "img"), *_copied(results, first.with_suffix(""))]


def _copied(files: Iterable[Path], directory: Path) -> list[Path]:
    directory.mkdir(exist_ok=True)
    # those that are kept may be what a document is written from
    return [Path(shutil.copy(file, directory)) for file in files if file.resolve().parent != directory.resolve()]


def _table(asked: str, files: Files) -> Iterator[str]:
    name, case, columns = _parts(asked, 3, "a table", "NAME | CASE | METRIC = HEAD; METRIC")
    kept = files[name]
    results = kept.results
    kept.require("case", case, results.cases)
    heads = [[part.strip() for part in column.partition("=")] for column in columns.split(";")]
    metrics = [metric for metric, _, _ in heads]
    for metric in metrics:
        kept.require("metric", metric, results.metrics)
    yield _row("", *(head or metric for metric, _, head in heads))
    yield "|---|" + "---:|" * len(metrics)
    for contestant in results.contestants:
        cells = [str(results.spread(contestant.name, case, metric) or "-") for metric in metrics]
        if why := _why(results, contestant, case):
            cells[0] = why if cells[0] == "-" else f"{cells[0]}; {why}"
        if set(cells) != {"-"}:
            yield _row(contestant.name, *cells)


def _why(results: Results, contestant: Contestant, case: str) -> str | None:
    """Say in a line why figures do not count, or why there are none; None if they do, or were not asked for."""
    pair = contestant.name, case
    if pair in results.invalid:
        return f"**invalid**: {results.invalid[pair]}"
    if pair in results.skips and not contestant.missing:
        return None
    why = results.why_not(contestant, case)
    return why and why.replace("|", "\\|")


def _targets(asked: str, files: Files) -> Iterator[str]:
    yield _row("", "wanted", "found", "")
    yield "|---|---|---:|---|"
    _require_same(asked.split(), files)
    for name in asked.split():
        for verdict in files[name].results.verdicts:
            target = verdict.target
            what = f"`{name}`, {target.case}: {target.metric}, {target.ours}"
            against = f" : {target.theirs}" if target.theirs else ""
            label = f"**{verdict.label}**" if verdict.label in ("missed", "invalid") else verdict.label
            yield _row(what + against, target.wanted, verdict.shown, label)


def _ratios(asked: str, files: Files) -> Iterator[str]:
    heads, *rows = (line for line in asked.splitlines() if line.strip())
    columns = [head.strip() for head in heads.split("|")]
    yield _row(*columns)
    yield "|---|" + "---:|" * (len(columns) - 1)
    found = [compared(row) for row in rows]
    _require_same([name for name, *_ in found], files)
    for name, case, metric, ours, theirs, text in found:
        yield _row(text, _ratio(files[name], case, metric, ours, theirs))


def compared(row: str) -> list[str]:
    """Return benchmark, case, metric, both contestants (the second may be empty), and what the row is called."""
    return _parts(row.replace(" = ", " | ", 1), 6, "a ratio", "NAME | CASE | METRIC | OURS | THEIRS = TEXT")


def _ratio(kept: Kept, case: str, metric: str, ours: str, theirs: str) -> str:
    """Return ours divided by theirs, with its interval; ours with its unit if theirs is empty; or why there is none."""
    results = kept.results
    known = {contestant.name: contestant for contestant in results.contestants}
    sides = list(filter(None, (ours, theirs)))
    kept.require("case", case, results.cases)
    kept.require("metric", metric, results.metrics)
    for side in sides:
        kept.require("contestant", side, known)
    found = results.found(case, metric, ours, theirs)
    unit = "" if theirs or found is None else f" {results.metrics[metric].unit}".rstrip()
    remarks = [f"{side} {why}" for side in sides if (why := _why(results, known[side], case))]
    return "; ".join([str(found or "-") + unit, *remarks])


def _require_same(names: Sequence[str], files: Files) -> None:
    """ValueError if the results are not of one commit, one machine, and the same peers."""
    for key in _SAME:
        if len({json.dumps(files[name].facts.get(key), sort_keys=True) for name in names}) > 1:
            what = {"machine": "on one machine, or not under the same conditions"}.get(key, f"with the same {key}")
            raise ValueError(f"{', '.join(names)} were not measured {what}")


def _setup(asked: str, files: Files) -> Iterator[str]:
    names = asked.split()
    _require_same(names, files)
    first = files[names[0]].facts
    machine = first["machine"]
    yield f"{machine['processor']}, {machine['cores']} cores, governor {machine['governor']}, SMT {machine['smt']},"
    yield f"Python {machine['python']} ({machine['python build']}), Go {first['go'].removeprefix('go')}; commit"
    yield f"{(first['commit'] or 'unknown')[:10]}{' with changes' if first['dirty'] else ''}. Peers:"
    yield ", ".join(f"{name} {version}" for name, version in first["versions"].items()) + "."
    yield f"Medians of starts, and their {first['confidence']:.0%} intervals by the bootstrap. Starts:"
    yield ", ".join(f"{name} {files[name].results.repetitions}" for name in names) + "."


def _parts(asked: str, number: int, what: str, form: str) -> list[str]:
    """Split what is asked for at its bars. ValueError if there are not as many parts, or if the last is empty."""
    parts = [part.strip() for part in asked.split("|")]
    if len(parts) != number or not parts[-1]:
        raise ValueError(f"{what} is asked for as {form}, not as {asked!r}")
    return parts


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
