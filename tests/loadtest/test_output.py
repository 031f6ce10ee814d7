"""What the load test prints: what others say is no markup."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest import report
from loadtest.check.grade import Honest, Report
from loadtest.check.kinds import Deadline
from loadtest.check.shown import show as show_check
from loadtest.churn.command import show as show_churn
from loadtest.churn.connection import Tally
from loadtest.churn.run import Plan, Result
from loadtest.target import Target

# what a stranger may say, and a user give
ODD = "x[/b]:smile:"


def test_what_a_server_calls_itself_is_no_markup() -> None:
    target = Target(f"http://127.0.0.1/?{ODD}", 2, ("127.0.0.1", 80), "127.0.0.1", "127.0.0.1", f"/?{ODD}", False)
    checked = Report(target.url, ODD, "F", 1.0, (), Honest(0, 0, None), 1.0, "now", gone=ODD, stopped=ODD)
    churned = Result(Plan(target, 1, 1.0), ODD, Deadline(), Tally(seconds=1.0), "now")
    out = io.StringIO()
    console = Console(width=200, file=out, emoji=False)
    show_check(console, checked)
    show_churn(console, churned)
    assert out.getvalue().count(f"http://127.0.0.1/?{ODD} ({ODD})") == 2
    assert f"After the attacks: {ODD}" in out.getvalue()


def test_a_folder_of_results_is_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.save("x", {}, tmp_path / "[b]:smile:")
    assert "[b]:smile:/x.json" in capsys.readouterr().out.replace("\n", "")
