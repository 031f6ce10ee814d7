"""What a result says of the checkout that it was measured with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from loadtest.report import revision, versions


def git(checkout: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.com"]
    done = subprocess.run(["git", "-C", checkout, *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("docs/results.json", "package/code.py", "tool/run.py"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text("old")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=first")
    return tmp_path


def test_a_clean_checkout(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert revision(checkout / "tool") == {"commit": commit, "dirty": False, "changes": ""}


def test_results_that_were_written_meanwhile_are_no_change(checkout: Path) -> None:
    (checkout / "docs/results.json").write_text("new")
    assert not revision(checkout / "tool")["dirty"]


def require_two_digests(checkout: Path, file: str) -> None:
    """Check that two contents of a file are two different changes."""
    digests = set()
    for text in ("new", "newer"):
        (checkout / file).write_text(text)
        found = revision(checkout / "tool")
        assert found["dirty"]
        digests.add(found["changes"])
    assert len(digests) == 2


def test_any_other_change_counts_and_different_ones_have_different_digests(checkout: Path) -> None:
    require_two_digests(checkout, "package/code.py")


def test_a_new_file_of_the_packages_is_a_change_and_one_beside_them_is_not(checkout: Path) -> None:
    (checkout / "run.log").write_text("what the run has printed")
    assert not revision(checkout / "tool")["dirty"]
    (checkout / "loadtest").mkdir()
    (checkout / "loadtest/nowhere").symlink_to("missing")
    require_two_digests(checkout, "loadtest/new.py")
    (checkout / ".gitignore").write_text("/loadtest/\n")
    git(checkout, "add", ".gitignore")
    git(checkout, "commit", "--quiet", "--message=second")
    assert not revision(checkout / "tool")["dirty"]


def test_the_versions_of_programs_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"wrk": "wrk 4.2.0 [epoll] Copyright\nUsage: wrk <options> <url>", "nginx": "nginx version: nginx/1.22.1"}
    for name, text in said.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{text}' >&2\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = versions.__wrapped__()
    assert (found["wrk"], found["nginx"]) == ("4.2.0", "1.22.1")


def test_a_folder_without_git(tmp_path: Path) -> None:
    assert revision(tmp_path) == {"commit": None, "dirty": False, "changes": ""}
