"""`python -m loadtest grid`: contestants that fail to start, die or are interrupted, and what is kept of them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.bench.web_servers import filled
from loadtest.check.run import Check
from loadtest.command import main
from loadtest.grid import contestants, run
from loadtest.grid.contestants import (
    CONTESTANTS,
    UPSTREAM,
    Contestant,
    Server,
    Setting,
    StartError,
    started,
)
from loadtest.grid.run import Grid, measure
from loadtest.target import ForbiddenTargetError

ROOT = Path(__file__).parents[2]

# serves until it has accepted so many connections, then it is gone; its child, if it has one, sleeps on with its socket
SCRIPT = """
import os, socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", @PORT@))
if "fork" in sys.argv:
    os.fork() or time.sleep(600)
def serve(connection):
    try:
        while connection.recv(65536):
            time.sleep(0.5 if "slow" in sys.argv else 0)
            connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    except OSError:
        pass
for number in range(@OPTIONS@):
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
print("no more", flush=True)
os._exit(7)
"""


def scripted(name: str, connections: int = 1_000_000, arguments: str = "") -> Contestant:
    """Return a server that is a script."""
    settings = (Setting(str(connections), "for the test"),)
    return Contestant(Server(name, f"@PYTHON@ @CONFIG@ {arguments}", settings, "pytest", config=SCRIPT), "best")


BROKEN = Contestant(Server("broken", "@PYTHON@ -m no_such_module", (), "pytest"), "defaults")
ABSENT = Contestant(Server("absent", "absent", (), "no-such-distribution"), "defaults")


def measured(directory: Path, *contestants: Contestant, connections: int = 0) -> tuple[bool, dict[str, Any]]:
    """Measure for half a second; return if all went well, and the results by the names of the servers."""
    said: list[str] = []
    good = measure(contestants, Grid(0.5, connections, 2, directory), said.append)
    assert not list(directory.glob("*.part"))
    found = [json.loads(file.read_text()) for file in directory.glob("*.json")]
    return good, {result["server"]: result for result in found}


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("name", CONTESTANTS)
def test_every_template_can_be_filled_and_every_setting_has_a_reason(name: str) -> None:
    contestant = CONTESTANTS[name]
    known = dict.fromkeys(["PYTHON", "HERE", "DIRECTORY", "CONFIG", "PORT", "OPTIONS", "GO", "ASGI", "WSGI"], "1")
    for template in (contestant.server.command, contestant.server.config):
        filled(template, known | ({"UPSTREAM": "2"} if contestant.server.proxy else {}))
    # what takes options has a place for them, and so does the port
    assert "@OPTIONS@" in contestant.server.command + contestant.server.config
    assert "@PORT@" in contestant.server.command + contestant.server.config
    assert all(option.text and option.reason for option in contestant.server.best)
    assert contestant.server.best


def test_an_unknown_place_in_a_template_is_an_error() -> None:
    with pytest.raises(KeyError, match="NOWHERE"):
        filled("serve @NOWHERE@", {})


def test_servers_that_fail_are_kept_with_the_reason_and_the_others_are_measured(tmp_path: Path) -> None:
    good, found = measured(tmp_path, BROKEN, ABSENT, scripted("sound"))
    assert not good
    assert "exit code 1" in found["broken"]["failed"]
    assert "No module named no_such_module" in found["broken"]["failed"]
    assert found["absent"]["failed"] == "not installed (pip install no-such-distribution)"
    assert "report" not in found["broken"]
    sound = found["sound"]
    assert sound["failed"] == sound["died"] == ""
    assert {attack["name"] for attack in sound["report"]["attacks"]} == run.NAMES
    assert sound["options"] == [{"text": "1000000", "reason": "for the test"}]
    assert sound["report"]["limit"] == sound["limit"] == 0.5
    assert {"commit", "dirty", "machine", "version", "at"} <= set(sound)


def test_a_server_that_dies_in_the_middle_is_graded_f_and_says_how(tmp_path: Path) -> None:
    good, found = measured(tmp_path, scripted("mortal", 30), scripted("sound"))
    assert good
    assert found["mortal"]["report"]["grade"] == "F"
    assert "exit code 7 (no more)" in found["mortal"]["died"]
    assert "Connection refused" in found["mortal"]["report"]["gone"]
    assert found["sound"]["died"] == ""


def test_a_server_that_is_too_slow_for_honest_clients_is_kept_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtest.check.run.HONEST_PATIENCE", 0.01)
    good, found = measured(tmp_path, scripted("slow", arguments="slow"), connections=1)
    assert not good
    assert "cannot be graded" in found["slow"]["failed"]


def test_a_port_that_is_taken_is_said_and_nobody_else_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(contestants, "free_port", lambda: port)
        _, found = measured(tmp_path, scripted("late"))
    assert found["late"]["failed"] == f"port {port} is taken"


def test_no_process_of_a_contestant_outlives_it() -> None:
    with started(scripted("family", arguments="fork")) as running:
        port = running.target.address[1]
        assert listens(port)
    assert not listens(port)


def test_a_proxy_has_the_application_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "UPSTREAM", UPSTREAM.replace("uvicorn", "no_such_module"))
    proxy = Contestant(Server("proxy", "@PYTHON@ @CONFIG@", (), "pytest", config=SCRIPT, proxy=True), "defaults")
    with pytest.raises(StartError, match="No module named no_such_module"), started(proxy):
        pytest.fail("it has started")


def test_ctrl_c_during_the_last_honest_request_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("loadtest.check.run._gone", interrupt)
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, scripted("first"))
    _, after = measured(tmp_path)
    assert after["first"]["report"]["interrupted"]
    assert after["first"]["died"] == ""


def test_a_half_done_result_never_replaces_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Check) -> None:
        raise KeyboardInterrupt

    _, before = measured(tmp_path, scripted("first"))
    monkeypatch.setattr(Check, "attack", interrupt)
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, scripted("first"), scripted("second"))
    _, after = measured(tmp_path)
    assert after["first"] == before["first"]
    assert after["second"]["report"]["interrupted"]


@pytest.mark.parametrize("method", ["prepare", "attack"])
def test_where_ports_run_out_it_says_so_and_keeps_what_was_measured(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, before = count(1), getattr(Check, method)

    def second_fails(self: Check) -> None:
        if next(calls) == 2:
            raise ForbiddenTargetError("no free port")
        before(self)

    monkeypatch.setattr(Check, method, second_fails)
    chosen = [scripted("first"), scripted("second")]
    monkeypatch.setattr("loadtest.grid.command._chosen", lambda _: chosen)
    page = tmp_path / "page.md"
    done = invoked("--limit", "0.5", "--connections", "0", "--results", str(tmp_path / "found"), "--page", str(page))
    assert done.exit_code == 1, done.output
    assert "Error: no free port" in done.output
    found = json.loads((tmp_path / "found" / "first-best.json").read_text())
    assert found["failed"] == ""
    assert "| first" in page.read_text()


def test_ctrl_c_keeps_what_was_measured_and_leaves_no_server(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "grid", "uvicorn-defaults", "--limit", "50", "--connections", "0"]
    files = ["--results", str(tmp_path / "results"), "--page", str(tmp_path / "page.md")]
    with subprocess.Popen([*command, *files], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "side by side" in line:
                break
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(30) == 130, rest
    found = json.loads((tmp_path / "results" / "uvicorn-defaults.json").read_text())
    assert (found["report"]["interrupted"], found["report"]["grade"]) == (True, "-")
    assert "interrupted: this is what was measured until then" in (tmp_path / "page.md").read_text()
    assert not listens(int(found["report"]["target"].rpartition(":")[2].rstrip("/")))


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["grid", *arguments])


def test_wrong_names_are_refused_and_the_right_ones_listed(tmp_path: Path) -> None:
    done = invoked("nginx", "apachee")
    assert done.exit_code == 2
    assert "no contestant apachee" in done.output
    assert "deadlined-defaults" in invoked("--list").output
    done = invoked("--write", "--results", str(tmp_path))
    assert done.exit_code == 1
    assert "has no results" in done.output


def test_names_of_servers_are_both_of_their_contestants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen: list[str] = []
    monkeypatch.setattr("loadtest.grid.command.measure", lambda names, *_: chosen.extend(one.name for one in names))
    invoked("nginx", "gunicorn-sync", "go-best", "--results", str(tmp_path))
    assert chosen == ["gunicorn-sync-defaults", "gunicorn-sync-best", "nginx-defaults", "nginx-best", "go-best"]
