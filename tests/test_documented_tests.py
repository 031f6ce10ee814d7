"""The tests that docs/testing.md shows to its readers pass, and quickly: their minutes are virtual."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "testing.md").read_text()
FILES = dict(re.findall(r"^<!-- file (\S+) -->\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    # one function has two cases
    assert re.search(rf"^{PAGE.count('def test_') + 1} passed", result.stdout, re.MULTILINE), result.stdout


def test_every_block_of_the_page_is_a_file() -> None:
    assert len(FILES) == len(re.findall(r"^```\w+$", PAGE, re.MULTILINE))
