"""A document's tables come from what was measured, and from nowhere else."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loadtest import document
from loadtest.bench import runner
from loadtest.bench.builds import INSTALLED, PURE
from loadtest.bench.contest import STATED
from loadtest.command import main
from loadtest.servers import ToolMissingError

DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"
BLOCK = re.compile(r"<!-- (table|targets|setup) (.+) -->")


def figure(contestant: str, metric: str, *values: float, case: str = "one") -> dict[str, Any]:
    return {"contestant": contestant, "case": case, "metric": metric, "values": values}


def result(**changes: Any) -> dict[str, Any]:
    """What `bench echo` might have left."""
    return {
        "commit": "0123456789abcdef",
        "dirty": True,
        "changes": "feed",
        "confidence": 0.95,
        "versions": {"uvicorn": "1.2", "wrk": "4"},
        "not_measured": [],
        "failures": [],
        "invalid": [],
        "machine": {
            "processor": "Z80",
            "cores": 1,
            "governor": "powersave",
            "smt": "on",
            "python": "3.14.0",
            "python build": "today, cc 1",
        },
        "go": "go1.30",
        "cases": ["one", "two"],
        "metrics": {"rate": {"unit": "1/s", "better": "more"}, "rate: growth": {"unit": "", "better": None}},
        "contestants": [
            {"name": "ours", "missing": None},
            {"name": "theirs", "missing": None},
            {"name": "nobody's", "missing": "not installed"},
            {"name": "silent", "missing": None},
        ],
        "figures": [
            figure("ours", "rate", 12345.6),
            figure("ours", "rate: growth", 0.01234),
            figure("theirs", "rate", 7.0),
            figure("ours", "rate", 1.0, 1.0, case="two"),
        ],
        "targets": [
            {"case": "one", "metric": "rate", "ours": "ours", "theirs": "theirs", "at_least": 1.5, "at_most": None,
             "always": False},
            {"case": "one", "metric": "rate", "ours": "ours", "theirs": "", "at_least": None, "at_most": 9.0,
             "always": False},
            {"case": "one", "metric": "rate", "ours": "ours", "theirs": "x", "at_least": None, "at_most": 9.0,
             "always": False},
        ],
    } | changes  # fmt: skip


class Desk:
    """A document, and results to fill it from."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.document = directory / "document.md"

    def leave(self, name: str, **changes: Any) -> None:
        (self.directory / f"bench-{name}.json").write_text(json.dumps(result(**changes)))

    def fill(self, text: str, code: int = 0) -> str:
        """The document afterwards; what was said if it could not be filled."""
        self.document.write_text(text)
        done = CliRunner().invoke(main, ["document", str(self.document), "--results", str(self.directory)])
        assert done.exit_code == code, done.output
        assert code == 0 or self.document.read_text() == text
        return done.output if code else self.document.read_text()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.leave("echo")
    return desk


def test_a_table_has_a_row_for_each_that_was_measured(desk: Desk) -> None:
    text = "before\n<!-- table echo | one | rate = per second; rate: growth -->\nold\n<!-- end -->\nafter\n"
    assert desk.fill(text) == (
        "before\n<!-- table echo | one | rate = per second; rate: growth -->\n\n"
        "|  | per second | rate: growth |\n"
        "|---|---:|---:|\n"
        "| ours | 12,346 | 0.0123 |\n"
        "| theirs | 7 | - |\n"
        "| nobody's | missing: not installed | - |\n"
        "\n<!-- end -->\nafter\n"
    )


def test_targets_tell_what_was_wanted_and_found(desk: Desk) -> None:
    filled = desk.fill("<!-- targets echo -->\n<!-- end -->\n")
    assert "| `echo`, one: rate, ours : theirs | ≥ 1.5 | 1,764 | reached |\n" in filled
    assert "| `echo`, one: rate, ours | ≤ 9 | 12,346 | **missed** |\n" in filled
    assert "| `echo`, one: rate, ours : x | ≤ 9 | - | not measured |\n" in filled


def test_the_setup_names_machine_and_repetitions(desk: Desk) -> None:
    desk.leave("heap", figures=[figure("ours", "rate", 7.0, 7.0)])
    filled = desk.fill("<!-- setup echo heap -->\n<!-- end -->\n")
    for word in (
        "Z80",
        "1 cores",
        "3.14.0",
        "cc 1",
        "Go 1.30",
        "echo 1 to 2, heap 2.",
        "powersave",
        "SMT on",
        "0123456789 with changes",
        "uvicorn 1.2, wrk 4",
        "95%",
    ):
        assert word in filled


def test_to_fill_twice_changes_nothing(desk: Desk) -> None:
    once = desk.fill("<!-- targets echo -->\n<!-- end -->\n\n<!-- table echo | two | rate -->\n<!-- end -->\n")
    assert desk.fill(once) == once


def test_pictures_of_what_is_told_go_beside_the_document(desk: Desk) -> None:
    desk.leave("heap")
    for name in ("echo", "heap"):
        (desk.directory / f"bench-{name}.png").write_bytes(name.encode())
    desk.fill("<!-- targets echo -->\n<!-- end -->\n")
    assert [file.read_bytes() for file in (desk.directory / "img").iterdir()] == [b"echo"]


def test_what_the_tables_were_written_from_is_kept_beside_the_document(desk: Desk) -> None:
    desk.leave("heap")
    desk.fill("<!-- targets echo -->\n<!-- end -->\n")
    kept = list((desk.directory / "document").iterdir())
    assert [file.name for file in kept] == ["bench-echo.json"]
    assert kept[0].read_text() == (desk.directory / "bench-echo.json").read_text()


def test_a_document_may_be_written_from_the_results_that_it_keeps(desk: Desk) -> None:
    once = desk.fill("<!-- targets echo -->\n<!-- end -->\n")
    desk.directory /= "document"
    assert desk.fill(once) == once
    assert [file.name for file in desk.directory.iterdir()] == ["bench-echo.json"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("<!-- table heap | one | rate -->\n<!-- end -->\n", "python -m loadtest bench heap"),
        ("<!-- table echo | three | rate -->\n<!-- end -->\n", "one, two"),
        ("<!-- table echo | one | speed -->\n<!-- end -->\n", "speed"),
        ("<!-- table echo -->\n<!-- end -->\n", "NAME | CASE"),
        ("<!-- tabel echo | one | rate -->\n<!-- end -->\n", "1 blocks end, and 0 begin"),
    ],
)
def test_what_cannot_be_filled_is_an_error_and_changes_nothing(desk: Desk, text: str, word: str) -> None:
    assert word in desk.fill(text, code=1)


@pytest.mark.parametrize("block", ["table echo | one | rate", "targets echo", "setup echo"])
def test_a_quick_run_fills_no_document(desk: Desk, block: str) -> None:
    desk.leave("echo", quick=True)
    assert "of a quick run, whose figures mean nothing" in desk.fill(f"<!-- {block} -->\n<!-- end -->\n", code=1)
    desk.leave("echo", quick=False)
    desk.fill(f"<!-- {block} -->\n<!-- end -->\n")


def test_results_of_two_machines_do_not_stand_in_one_document(desk: Desk) -> None:
    desk.leave("heap", machine={"processor": "6502"})
    assert "one machine" in desk.fill("<!-- setup echo heap -->\n<!-- end -->\n", code=1)


@pytest.mark.parametrize("block", ["setup", "targets"])
@pytest.mark.parametrize("change", [{"commit": "another"}, {"changes": "other"}, {"versions": {}}, {"go": "go2"}])
def test_results_of_two_commits_or_of_other_peers_are_not_mixed(desk: Desk, block: str, change: dict[str, Any]) -> None:
    desk.leave("heap", **change)
    assert f"the same {next(iter(change))}" in desk.fill(f"<!-- {block} echo heap -->\n<!-- end -->\n", code=1)


def test_what_failed_or_does_not_count_stays_in_the_table_with_its_reason(desk: Desk) -> None:
    failures = [{"contestant": "silent", "case": "one", "output": "ContestantError: no | such\nmore"}]
    invalid = [{"contestant": "theirs", "case": "one", "why": "it waited"}]
    desk.leave("echo", failures=failures, invalid=invalid)
    filled = desk.fill("<!-- table echo | one | rate -->\n<!-- end -->\n")
    assert "| silent | failed: ContestantError: no \\| such |\n" in filled
    assert "| theirs | 7; **invalid**: it waited |\n" in filled


def test_a_figure_is_shown_with_its_interval(desk: Desk) -> None:
    desk.leave("echo", figures=[figure("ours", "rate", *[4.5, 5.0, 6.0] * 2)])
    assert "| ours | 5 (4.5 to 6) |" in desk.fill("<!-- table echo | one | rate -->\n<!-- end -->\n")


RATIOS = """<!-- ratios what | times theirs
echo | one | rate | ours | theirs = messages
echo | one | rate | ours | = of ours
echo | one | rate | ours | nobody's = against nobody -->
<!-- end -->
"""


def test_ratios_and_figures_of_several_benchmarks_stand_in_one_table(desk: Desk) -> None:
    desk.leave("echo", figures=[figure("ours", "rate", 6.0), figure("theirs", "rate", 4.0)])
    filled = desk.fill(RATIOS)
    assert "| what | times theirs |\n|---|---:|\n| messages | 1.5 |\n| of ours | 6 1/s |\n" in filled
    assert "| against nobody | -; nobody's missing: not installed |\n" in filled
    assert desk.fill(filled) == filled


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("| theirs =", "| thiers =", "no contestant 'thiers'"),
        ("| one | rate | ours | theirs", "| three | rate | ours | theirs", "no case 'three'"),
        ("rate | ours | theirs", "speed | ours | theirs", "no metric 'speed'"),
        ("ours | theirs = messages", "ours | theirs", "OURS | THEIRS = TEXT"),
    ],
)
def test_a_ratio_of_what_there_is_not_is_an_error(desk: Desk, old: str, new: str, word: str) -> None:
    desk.leave("echo", figures=[figure("ours", "rate", 6.0), figure("theirs", "rate", 4.0)])
    assert word in desk.fill(RATIOS.replace(old, new), code=1)


def test_of_several_documents_all_are_written_or_none(desk: Desk) -> None:
    good, bad = desk.directory / "good.md", desk.directory / "bad.md"
    good.write_text("<!-- targets echo -->\n<!-- end -->\n")
    bad.write_text("<!-- targets heap -->\n<!-- end -->\n")
    command = ["document", str(good), str(bad), "--results", str(desk.directory)]
    assert CliRunner().invoke(main, command).exit_code == 1
    assert good.read_text() == "<!-- targets echo -->\n<!-- end -->\n"
    bad.write_text("<!-- setup echo -->\n<!-- end -->\n")
    assert CliRunner().invoke(main, command).exit_code == 0
    assert "reached" in good.read_text()
    assert "Z80" in bad.read_text()


def test_the_readme_asks_for_what_there_is() -> None:
    text = (DOCUMENT.parents[1] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"<!-- ratios [^\n]+\n([^>]+?) -->", text)
    assert len(blocks) == 2
    for row in "\n".join(blocks).splitlines():
        name, case, metric, ours, theirs, _ = document.compared(row)
        benchmark = runner.load(name)
        assert case in benchmark.cases()
        assert metric in benchmark.metrics
        # a peer may be missing here, but each must be one that the case is for
        skipped = benchmark.skips(ours, case)
        assert skipped is None or " is missing: " in skipped
        with suppress(ToolMissingError):  # without its tool a benchmark has no contestants
            # of what is not compiled, some contestants are named after the other build
            names = {contestant.name.replace(PURE, INSTALLED) for contestant in benchmark.contestants()}
            assert {ours, theirs or ours} <= names


def test_the_document_asks_for_what_there_is() -> None:
    asked = BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert {kind for kind, _ in asked} == {"table", "targets", "setup"}
    for kind, what in asked:
        if kind != "table":
            assert set(what.split()) <= set(STATED)
            continue
        name, case, columns = (part.strip() for part in what.split("|"))
        benchmark = runner.load(name)
        assert case in benchmark.cases()
        assert {column.partition("=")[0].strip() for column in columns.split(";")} <= set(benchmark.metrics)
