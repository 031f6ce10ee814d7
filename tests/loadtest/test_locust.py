"""The users of Locust, run by its own master and workers as processes: it patches what the rest of the tests need."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from time import sleep
from typing import Any

import pytest

if find_spec("locust") is None:
    pytest.skip("the load test's extra is not installed: pip install .[loadtest]", allow_module_level=True)

from loadtest.servers import Server, deadlined_command, running
from tests.support.slow_servers import Rule, slow_server

ROOT = Path(__file__).parents[2]
FILE = ROOT / "loadtest" / "locustfile.py"


@contextmanager
def locust(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process of Locust; kill it at the end of the block if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "locust", "-f", str(FILE), *arguments],
        cwd=ROOT / "docs", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def alone(url: str, *arguments: str) -> tuple[int, str]:
    """Run one process without workers for a few seconds; return its exit code and output."""
    with locust(
        "--headless", "--host", url, "-u", "2", "-r", "10", "-t", "20s", "--only-summary", *arguments
    ) as process:
        output, _ = process.communicate(timeout=50)
        return process.returncode, output


@pytest.mark.parametrize(
    ("url", "arguments", "code", "text"),
    [
        ("http://93.184.215.14/", (), 2, "is a public address"),
        pytest.param(
            "http://127.0.0.1:1/", ("--attacks", "nonsense"), 2, "nonsense is none of silent", marks=pytest.mark.timed
        ),
        pytest.param("http://127.0.0.1:1/", (), 3, "Connection refused", marks=pytest.mark.timed),
    ],
)
def test_a_target_that_may_not_or_cannot_be_attacked_ends_the_run(
    url: str, arguments: tuple[str, ...], code: int, text: str
) -> None:
    found, output = alone(url, *arguments)
    assert found == code, output
    assert text in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("attack", "text"),
    [
        ("websocket-silent", "the URL does not speak websocket"),
        ("tls-silent", "the URL is not https"),
        ("slow-read", "do not fill a server's buffers"),
    ],
)
@pytest.mark.timed
def test_an_attack_that_is_not_possible_is_told_and_does_not_pass(attack: str, text: str) -> None:
    with slow_server(Rule("none", drops=101, large=300)) as server:
        found, output = alone(server.url, "--attacks", attack, "Attacker")
    assert found == 2, output
    assert f"{attack}: " in output
    assert text in output


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now. Locust says nowhere which port it has taken of itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def stats(page: int) -> dict[str, Any]:
    """Ask the web page of a master for its figures."""
    with urllib.request.urlopen(f"http://127.0.0.1:{page}/stats/requests", timeout=5) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def url_of(server: Server) -> str:
    return f"{server.url}/"


@pytest.mark.timed
def test_a_master_and_two_workers_attack_ask_and_churn() -> None:
    flags = ("--idle", "500ms", "--read-header", "1s", "--body-grace", "1s", "--no-access-log")
    port, page = str(free_port()), free_port()
    worker = ("--worker", "--master-host", "127.0.0.1", "--master-port", port)
    with (
        running(deadlined_command("loadtest.apps:target", *flags)) as server,
        locust(
            "--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", "2",
            "--autostart", "--web-host", "127.0.0.1", "--web-port", str(page), "--host", url_of(server),
            "-u", "30", "-r", "30", "-t", "60s", "--rate", "5", "--deadline", "1.5", "--limit", "20",
            "--attacks", "silent,slow-header,slow-body,idle",
        ) as master,
        locust(*worker),
        locust(*worker),
    ):  # fmt: skip
        found: dict[str, Any] = {}
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        wanted = {("ATTACK", name) for name in ("silent", "slow-header", "slow-body", "idle")}
        wanted |= {("GET", "/"), ("CHURN", "request"), ("CHURN", "cut")}
        while not wanted <= rows.keys() or rows["GET", "/"]["num_requests"] < 100:
            assert master.poll() is None, master.communicate()[0]
            sleep(0.5)
            with suppress(OSError):  # not yet there
                found = stats(page)
                rows = {(str(row["method"]), str(row["name"])): row for row in found["stats"]}
        master.send_signal(signal.SIGINT)
        output, _ = master.communicate(timeout=30)
    assert len(found["workers"]) == 2
    assert {worker["user_count"] for worker in found["workers"]} == {15}
    assert {key: row["num_failures"] for key, row in rows.items() if row["num_failures"]} == {}
    # the deadlines that the server was given; `idle` closes a second after what it advertises
    for name, seconds in (("silent", 1.0), ("slow-header", 1.0), ("slow-body", 1.0), ("idle", 1.5)):
        assert 1000 * seconds - 30 <= rows["ATTACK", name]["min_response_time"]
        assert rows["ATTACK", name]["median_response_time"] < 1000 * seconds + 500
    assert rows["CHURN", "cut"]["max_response_time"] < 1000
    assert re.search(r"GET +/ +\d+ +0\(0", output), "its own summary shows them, too"


@pytest.mark.timed
def test_what_a_server_holds_is_a_failure() -> None:
    with slow_server(Rule("none", idle=0.2)) as server:
        code, output = alone(server.url, "--attacks", "slow-header", "--limit", "1", "-t", "6s", "Attacker")
        assert code == 1
        assert "held for 1 s" in output
        code, output = alone(server.url, "--deadline", "2", "-t", "6s", "Churner")
    assert code == 1
    assert "s before the deadline" in output
