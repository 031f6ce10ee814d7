"""What the commands of the load test have in common."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

from loadtest.servers import ROOT
from tests.support.net import LOCALHOST

COMMANDS = [("check", "--limit", "5"), ("http", "--rate", "5", "--duration", "5"), ("churn", "--connections", "30")]


@pytest.mark.parametrize("arguments", COMMANDS, ids=[name for name, *_ in COMMANDS])
def test_ctrl_c_during_the_first_request_is_one_line(arguments: tuple[str, ...]) -> None:
    """The server accepts it, and never answers."""
    with socket.create_server((LOCALHOST, 0)) as listener:
        name, *options = arguments
        process = subprocess.Popen(
            [sys.executable, "-m", "loadtest", name, f"http://{LOCALHOST}:{listener.getsockname()[1]}/", *options],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        listener.settimeout(30)
        # the first may only try whether anything listens
        while not (client := listener.accept()[0]).recv(1000):
            client.close()
        process.send_signal(signal.SIGINT)
        try:
            output, _ = process.communicate(timeout=30)
        finally:
            process.kill()
            client.close()
    assert process.returncode == 130, output
    assert "Interrupted" in output
    assert "Traceback" not in output
    assert "Aborted" not in output
