"""Processes beside that of a load test. They are real ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.churn import client as churn
from loadtest.crew import Child, Function, crew
from loadtest.openloop import run as openloop

# a module that takes a while to be imported, as all do on a busy machine
SLOW = """
import os, time
from pathlib import Path

time.sleep(0.3)

def main(channel):
    Path(__file__).with_name(f"{os.getpid()}.begun").touch()
    channel.send("begun")
    channel.recv()
"""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function of that module, which only the processes import."""
    (tmp_path / "slow_client.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return SimpleNamespace(__module__="slow_client", __name__="main")


def test_all_processes_of_a_crew_have_begun_before_they_get_orders(slow: Any, tmp_path: Path) -> None:
    with crew(slow, 3):
        assert len(list(tmp_path.glob("*.begun"))) == 3


def test_a_process_that_cannot_begin_is_an_error(slow: Any) -> None:
    slow.__name__ = "nothing"
    with pytest.raises(RuntimeError, match="has ended"), crew(slow, 2):
        pass  # pragma: no cover


@pytest.mark.parametrize("main", [openloop.main, churn.main], ids=["http", "churn"])
def test_a_client_says_that_it_has_begun(main: Function) -> None:
    with Child(main) as child:
        assert child.receive() == "begun"
