"""What holds the end of Python after the drain is named, also where it is no file of the application."""

from __future__ import annotations

from pathlib import Path

import pytest

from deadlined.runtime import LOOPS
from tests.support.command import Starter

# as a tracer that sends what it has when its process ends
TRACER = """
import atexit, threading

@atexit.register
def send_what_is_left():
    threading.Event().wait()
"""

APP = """
import sys
sys.path.insert(0, "site-packages")
import tracer

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_an_installed_package_that_holds_the_end_is_named(start: Starter, tmp_path: Path, loop: str) -> None:
    (tmp_path / "traced.py").write_text(APP)
    tracer = tmp_path / "site-packages" / "tracer.py"
    tracer.parent.mkdir()
    tracer.write_text(TRACER)
    process = start("traced:app", "--loop", loop, "--drain", "1h")
    process.signal()
    code, err = process.end()
    assert code == 0
    assert err.endswith("/site-packages/tracer.py, line 6, in send_what_is_left\n"), err
