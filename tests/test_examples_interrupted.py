"""Ctrl-C ends an example without a traceback: it is how most of them are ended, and what their readers copy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# seconds; for what must happen, and never waited for in full
PATIENCE = 30.0

# arguments with which each says something, and then goes on until it is interrupted
EXAMPLES = {
    "asgi_events": "--port 0",
    "asgi_extend": "--port 0",
    "batches_asyncio": "--second 1",
    "chat": "--port 0",
    "echo_asyncio": "--port 0",
    "echo_idle": "--port 0",
    "embed_asyncio": "--port 0",
    "embed_trio": "--port 0",
    "line_total": "--port 0",
    "ticker": "--period 0.1 --beats 1000000",
    "timer_thread": "--report 0.01",
    "tls_server": "--port 0",
}


def test_no_example_is_left_out() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_ctrl_c_ends_it_quietly(name: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *EXAMPLES[name].split()]
    pipe = subprocess.PIPE
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))}
    environment = {**os.environ, **paths, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("cat\n")
        process.stdin.flush()
        try:
            wanted = "listening" if "--port" in command else ""
            assert any(wanted in line for line in process.stdout)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert errors == ""
