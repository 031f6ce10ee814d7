"""What the load test prints: where standard output fails, what was measured is kept; what others say is no markup."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
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
from loadtest.output import Output
from loadtest.servers import ROOT
from loadtest.target import Target
from tests.support.slow_servers import Rule, slow_server

CHECK = ("check", "--limit", "0.6", "--connections", "0", "--only", "silent", "--fail-below", "A")
HTTP = ("http", "--rate", "20", "--duration", "0.2", "--fail-if", "p50<1000s")
CHURN = ("churn", "--connections", "3", "--duration", "0.5", "--deadline", "0.4")
# what a stranger may say, and a user give
ODD = "x[/b]:smile:"


def printing(arguments: tuple[str, ...], url: str, file: Path, stdout: int, **around: str) -> tuple[int, str]:
    """Run a command that prints there; return its exit code and what is on stderr."""
    name, *options = arguments
    command = [sys.executable, "-m", "loadtest", name, url, *options, "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False,
                          env=os.environ | around)  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [CHECK, HTTP, CHURN], ids=lambda one: one[0])
def test_a_reader_that_has_left_changes_nothing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "json"
    reader, writer = os.pipe()
    os.close(reader)
    # each of them ends with 1: a server without any deadline, and a condition that is true
    with slow_server(Rule("none")) as server:
        code, said = printing(arguments, server.url, file, writer)
    os.close(writer)
    assert json.loads(file.read_text())["target"] == server.url
    # 4 if this machine was so busy that the client was late
    assert code in (1, 4), said
    assert "Traceback" not in said
    assert "standard output" not in said


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "json"
    with slow_server(Rule("absolute", 0.2)) as server, Path("/dev/full").open("wb") as full:
        code, said = printing(CHECK, server.url, file, full.fileno())
    assert (code, said) == (1, "Error: standard output: No space left on device\n")
    assert json.loads(file.read_text())["grade"] == "A"


def test_letters_that_the_encoding_does_not_have_are_replaced(tmp_path: Path) -> None:
    file, shown = tmp_path / "json", tmp_path / "shown"
    with slow_server(Rule("absolute", 0.2)) as server, shown.open("wb") as stdout:
        code, said = printing(CHECK, server.url, file, stdout.fileno(), PYTHONIOENCODING="ascii")
    assert (code, said) == (0, "")
    assert " s ? " in shown.read_text(encoding="ascii")
    assert "Grade: A" in shown.read_text(encoding="ascii")


def test_an_output_that_was_closed_before_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    output = Output()
    print("x", file=output, flush=True)
    assert (output.isatty(), output.encoding, output.failed) == (False, "utf-8", False)


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
    report.save(tmp_path / "[b]:smile:" / "x.json", {})
    assert "[b]:smile:/x.json" in capsys.readouterr().out.replace("\n", "")
