"""docs/grid.md: what its cells say, what it says of our own server, and that it is current."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.check.attacks import ATTACKS
from loadtest.grid.page import cell, write
from loadtest.grid.run import remarks, results

DOCS = Path(__file__).parents[2] / "docs"
LIMIT = 330.0
BY_NAME = {attack.name: attack for attack in ATTACKS}


def found(
    name: str = "silent",
    verdict: str = "pass",
    seconds: float | None = 10.0,
    kind: str = "absolute",
    why: str = "ended after 10 s",
    *,
    spread: float = 0.0,
    rate: list[float] | None = None,
    served: tuple[int, int, float | None] = (100, 0, 4.0),
) -> dict[str, Any]:
    """Return an attack as a report has it."""
    honest = dict(zip(("ok", "failed", "p99_ms"), served, strict=True))
    return {"name": name, "verdict": verdict, "seconds": seconds, "kind": kind, "why": why, "spread": spread,
            "min_rate": rate, "watched": LIMIT if seconds is None else seconds, "honest": honest}  # fmt: skip


def result(server: str, grade: str = "A", settings: str = "defaults", **attacks: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a server; all attacks are passed but those that are given."""
    given = {name.replace("_", "-"): attack for name, attack in attacks.items()}
    seen = [
        {**given.get(name, found(seconds=None if attack.enough is None else 10.0)), "name": name}
        for name, attack in BY_NAME.items()
        if not attack.needs_tls
    ]
    return {
        "server": server, "settings": settings, "version": "1.2", "options": [], "note": "", "failed": "", "died": "",
        "at": "2026-01-02T03:04:05+00:00", "limit": LIMIT, "crowd": 256, "commit": "0123456789abcdef", "dirty": False,
        "machine": {"processor": "a processor", "cores": 2, "system": "Linux", "python": "3.11", "timers": "compiled"},
        "report": {"grade": grade, "limit": LIMIT, "gone": "", "interrupted": False, "attacks": seen},
    }  # fmt: skip


def failed(server: str, reason: str) -> dict[str, Any]:
    whole = result(server)
    del whole["report"]
    return {**whole, "failed": reason, "version": ""}


@pytest.mark.parametrize(
    ("attack", "text"),
    [
        (found(), "10 s"),
        (found(seconds=0.01), "at once"),
        (found(seconds=5.02), "5.0 s"),
        (found(seconds=20.0, kind="min-rate", rate=[500.0, 500.0]), "20 s + 500 B/s"),
        (found(seconds=20.0, kind="min-rate", rate=[200.0, 300.0]), "20 s + 200 to 300 B/s"),
        (found(verdict="weak", seconds=75.0), "~ 75 s"),
        (found(seconds=20.0, spread=12.0), "20 s ± 6 s"),
        (found(verdict="fail", seconds=None, kind="none"), "**held**"),
        (found("slow-header", "fail", 10.0, "idle"), "**10 s if it stalls**"),
        (found("half-close", "fail", 45.0), "**45 s**"),
        (found(verdict="not applicable", seconds=None), "n/a"),
        (found(verdict="unfinished", seconds=None), "not finished"),
        (found(verdict="fail", seconds=None, why="not measured: refused"), "**not measured**"),
        # honest clients decide
        (found(verdict="fail", served=(40, 60, 1000.0)), "10 s; **served 40 %**"),
        (found(verdict="weak", served=(95, 5, 900.0)), "10 s; ~ served 95 %"),
        (found(verdict="weak", served=(100, 0, 312.0)), "10 s; ~ p99 312 ms"),
        (found("connection-flood", "pass", None, "none"), "passes"),
        (found("connection-flood", "fail", None, "none", served=(0, 100, None)), "**served 0 %**"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_cell_says_what_was_found(attack: dict[str, Any], text: str) -> None:
    assert cell(BY_NAME[attack["name"]], attack, LIMIT) == text


def lines(page: str, start: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith(start)]


def test_the_best_come_first_and_failed_ones_stay_with_the_reason() -> None:
    page = write([failed("daphne", "no | port"), result("uvicorn", "F"), result("nginx", "B"), result("deadlined")])
    rows = [line.split("|")[1].split()[0] for line in lines(page, "| ") if "**" in line or "none" in line]
    assert [row for row in rows if row in ("deadlined", "nginx", "uvicorn", "daphne")] == [
        "deadlined", "nginx", "uvicorn", "daphne",
    ]  # fmt: skip
    assert lines(page, "| daphne <sup>1</sup> | none |")
    assert lines(page, "1. daphne: not measured: no \\| port")
    # every row has as many cells as the head
    assert (
        len({line.count("|") - line.count("\\|") for line in lines(page, "| ") if "<sup>" in line or "1.2 |" in line})
        == 1
    )


def test_footnotes_have_the_numbers_that_markdown_gives_them() -> None:
    noted = [{**result(server, grade), "note": "well"} for server, grade in (("go", "A"), ("node", "C"))]
    page = write([result("caddy", "B"), *noted])
    assert lines(page, "| go 1.2 <sup>1</sup> |")
    assert lines(page, "| node 1.2 <sup>2</sup> |")
    assert lines(page, "1. go: well")
    assert lines(page, "2. node: well")


def test_the_end_of_a_server_is_a_footnote() -> None:
    died = {**result("uvicorn", "F"), "died": "it ended with exit code 7"}
    died["report"]["gone"] = "refused"
    assert lines(write([died]), "1. uvicorn: after the attacks: refused; in the end it ended with exit code 7")


def test_where_ours_is_not_the_best_is_said() -> None:
    ours = result("deadlined", "C", slow_read=found(verdict="fail", seconds=None, kind="none"))
    page = write([ours, result("nginx", "B", silent=found(seconds=5.0)), result("uvicorn", "F")])
    assert lines(page, "- with their defaults, the grade C is below that of nginx (B)")
    assert lines(page, "- with their defaults, `slow-read`: ours is **held**; better are nginx (10 s), uvicorn (10 s)")
    assert lines(
        page, "- with their defaults, `silent`: ours is 10 s; the verdict is the same, and sooner are nginx (5.0 s)"
    )
    assert lines(write([result("deadlined"), result("nginx")]), "No server of this grid does better in any attack.")
    assert lines(write([result("nginx")]), "deadlined was not measured.")


@pytest.mark.parametrize("key", ["limit", "crowd"])
def test_what_was_attacked_otherwise_is_not_compared(key: str) -> None:
    with pytest.raises(ValueError, match=f"not the same {key}"):
        write([result("uvicorn"), {**result("nginx"), key: 1.0}])


def test_what_was_measured_on_another_machine_is_not_compared() -> None:
    other = result("nginx")
    other["machine"] = {**other["machine"], "cores": 64}
    with pytest.raises(ValueError, match="not the same cores: 2; 64"):
        write([result("uvicorn"), other])


def test_what_the_one_who_measured_says_is_on_the_page(tmp_path: Path) -> None:
    assert remarks(tmp_path) == ""
    (tmp_path / "remarks.txt").write_text("A busy machine.\n")
    assert lines(write([result("uvicorn")], remarks(tmp_path)), "A busy machine.")


def test_results_of_several_commits_are_named() -> None:
    other = {**result("nginx"), "commit": "fedcba9876543210", "dirty": True}
    page = write([result("uvicorn"), result("deadlined"), other])
    assert "at commit 0123456789, but at fedcba9876 with changes: nginx (defaults), on a processor" in page


def test_the_page_is_current() -> None:
    assert (DOCS / "grid.md").read_text(encoding="utf-8") == write(list(results(DOCS / "grid")), remarks(DOCS / "grid"))


def test_the_readmes_grades_are_those_of_the_grid() -> None:
    lines = (DOCS.parent / "README.md").read_text(encoding="utf-8").splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("| **deadlined** |"))
    servers, grades = (re.findall(r"\w+", line) for line in (lines[first], lines[first + 2]))
    reports = [json.loads((DOCS / "grid" / f"{server}-defaults.json").read_bytes())["report"] for server in servers]
    assert grades == [report["grade"] for report in reports]
