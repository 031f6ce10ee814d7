"""`python -m loadtest churn` against real servers: what each does wrong is found, and what a good one says is believed.

A busy machine makes cuts later and a client late, which is exit code 4: bounds are counts, and small ones.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.churn import run as churn_run
from loadtest.churn.audit import Audited
from loadtest.command import main
from loadtest.servers import attempts, deadlined_command, running
from tests.support.load_command import interrupt_exit, measuring
from tests.support.net import certificates
from tests.support.slow_servers import Rule, slow_server

ROOT = Path(__file__).parents[2]
SMALL = ("--connections", "30", "--duration", "1.2")


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["churn", *arguments])


def churned(tmp_path: Path, rule: Rule, *arguments: str) -> dict[str, Any]:
    """Churn at a server under this rule, and return the figures."""
    file = tmp_path / "figures.json"
    with slow_server(rule) as server:
        done = command(server.url, *SMALL, *arguments, "--json", str(file))
    figures: dict[str, Any] = json.loads(file.read_text())
    assert done.exit_code in (4, 1 if figures["problems"] else 0), done.output
    return figures


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, str]]:
    """A server of ours, which closes idle connections a second after the advertised time, and its admin listener."""
    flags = ("--idle", "200ms", "--admin", "127.0.0.1:0", "--no-access-log", "--log-format", "json")
    with running(deadlined_command("loadtest.apps:hello", *flags)) as server:
        assert any("listening" in {one["event"] for one in server.records} for _ in attempts(30.0, 0.01))
        urls = {record["event"]: record["url"] for record in server.records if "url" in record}
        yield urls["listening"], urls["admin listening"]


@pytest.mark.parametrize("profile", ["steady", "herd"])
def test_client_and_server_agree(served: tuple[str, str], profile: str, tmp_path: Path) -> None:
    url, admin = served
    file, page = tmp_path / "figures.json", tmp_path / "page.html"
    done = command(
        f"{url}/", "--connections", "60", "--duration", "3", "--profile", profile, "--processes", "2",
        "--deadline", "1.2", "--admin", admin, "--json", str(file), "--html", str(page),
    )  # fmt: skip
    found = json.loads(file.read_text())
    assert done.exit_code in (4, 1 if found["problems"] else 0), done.output
    assert found["server"] == "deadlined"
    assert (found["cut"]["early"], found["lost_requests"], found["errors"]) == (0, 0, {})
    assert found["open_most"] >= 30
    # a busy machine may be late, and no server is to blame for that; the counts must agree
    counts = [claim for claim in found["admin"]["claims"] if "late" not in claim["what"]]
    assert len(counts) == 5
    assert [claim for claim in counts if not claim["agree"]] == []
    assert found["admin"]["differ"] == []
    ends = ("closed", "reset", "overdue", "raced_requests")
    assert found["opened"] == found["cut"]["number"] + sum(found[end] for end in ends)
    assert found["requests"] == found["answered"]["200"] + found["raced_requests"]
    assert "agree" in page.read_text()


def test_the_deadline_is_measured(tmp_path: Path) -> None:
    found = churned(tmp_path, Rule(idle=0.8))
    assert found["deadline"]["kind"] == "absolute"
    assert found["deadline"]["seconds"] >= 0.4
    assert found["opened"] >= 30


def test_cuts_before_the_deadline_are_found(tmp_path: Path) -> None:
    found = churned(tmp_path, Rule(idle=0.4), "--deadline", "1.5")
    assert found["cut"]["early"] > 0
    assert found["cut"]["early_by_ms"] > 500
    assert "were cut before their deadline" in found["problems"][0]


def test_connections_that_are_never_cut_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.churn.run.LATE", 0.1)
    found = churned(tmp_path, Rule(), "--deadline", "0.4")
    assert found["overdue"] > 0
    assert found["cut"]["number"] == 0


def test_a_server_without_a_deadline_is_churned_all_the_same(tmp_path: Path) -> None:
    found = churned(tmp_path, Rule(), "--limit", "0.5")
    assert found["deadline"] == {"kind": "none", "seconds": None, "spread": 0.0}
    assert found["problems"] == []
    assert found["opened"] == found["closed"] + found["reset"] >= 30


def test_requests_that_were_sent_in_time_and_cut_are_found(tmp_path: Path) -> None:
    found = churned(tmp_path, Rule(idle=5.0, drops=2), "--deadline", "0.8")
    assert found["lost_requests"] > 0
    assert found["requests"] == found["answered"]["200"] + found["lost_requests"] + found["raced_requests"]


def test_over_tls(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    with slow_server(Rule(idle=0.5), certificates().server) as server:
        # few, so that the handshakes of this process are done long before its end
        few = ("--connections", "5", "--duration", "2", "--deadline", "0.5")
        done = command(server.url.replace("http:", "https:"), *few, "--json", str(file))
    assert done.exit_code in (0, 4), done.output
    found = json.loads(file.read_text())
    assert found["errors"] == {}
    assert found["answered"]["200"] >= 5


def test_responses_that_fail_in_the_middle_are_told(tmp_path: Path) -> None:
    found = churned(tmp_path, Rule(idle=0.5, breaks=20), "--deadline", "0.5")
    assert found["answered"]["500"] > 0
    assert any("responses of 500" in line for line in found["problems"])


def test_a_server_that_is_gone_in_the_middle_loses_nothing_that_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    with slow_server(Rule(idle=0.5)) as server:
        arguments = [server.url, *SMALL, "--deadline", "0.5", "--json", str(file)]
        process = subprocess.Popen([sys.executable, "-m", "loadtest", "churn", *arguments], cwd=ROOT)
        server.wait_for(40)
    assert process.wait(30) in (1, 4)
    found = json.loads(file.read_text())
    assert found["answered"]["200"] > 0
    # each of thirty connections comes back once a second: a churn is no flood
    assert 0 < found["errors"]["Connection refused"] <= 60


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(status="500 Broken"), "answers 500"),
        (Rule(status="404 Not Found"), "answers 404: every request would be an error"),
        (Rule(status="301 Moved", fields="Location: /new"), "redirects (301) to /new"),
        (Rule(raw=b"SSH-2.0-x\r\n"), "speaks no HTTP"),
        (Rule(closes=True), "closes each connection: there is no keep-alive to churn"),
        (Rule(idle=0.05), "ends a silent connection after 0.0"),
    ],
)
def test_a_target_that_cannot_be_churned(rule: Rule, text: str) -> None:
    with slow_server(rule) as server:
        done = command(server.url, *SMALL)
    assert done.exit_code == 3
    assert text in done.output


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["http://127.0.0.1:1/"], 3, "Connection refused"),
        (["http://no.such.host.invalid/"], 3, "does not resolve"),
        (["http://10.1.2.3/"], 2, "is not loopback"),
        (["http://93.184.215.14/"], 2, "is a public address"),
        (["http://127.0.0.1:1/", "--admin", "http://10.1.2.3:9000/"], 2, "is not loopback"),
        (["http://127.0.0.1:1/", "--admin", "127.0.0.1:1"], 3, "Connection refused"),
        (["http://127.0.0.1:1/", "--admin-token-file", __file__], 2, "--admin-token-file needs --admin"),
        (["http://127.0.0.1:1/", "--connections", "0"], 2, "--connections"),
        (["http://127.0.0.1:1/", "--profile", "wild"], 2, "--profile"),
        (["http://127.0.0.1:1/", "--deadline", "0.01"], 2, "--deadline"),
        (["nonsense"], 2, "no URL of HTTP"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else None,
)
def test_bad_input_is_one_clear_line(arguments: list[str], code: int, text: str) -> None:
    done = command(*arguments)
    assert done.exit_code == code, done.output
    assert text in " ".join(done.output.split())


@pytest.mark.parametrize("token", [b"\xff\xfe\n", "tok\u20acn\n".encode(), b"a\x01b\n"])
def test_a_token_that_cannot_be_sent_is_one_clear_line(token: bytes, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(token)
    with slow_server(Rule()) as server:
        done = command(server.url, *SMALL, "--deadline", "1", "--admin", server.url, "--admin-token-file", str(file))
    assert done.exit_code == 2, done.output
    assert "the first line of --admin-token-file is no token" in " ".join(done.output.split())


def test_an_admin_listener_that_is_none() -> None:
    with slow_server(Rule()) as server:
        done = command(server.url, *SMALL, "--deadline", "1", "--admin", server.url)
    assert done.exit_code == 3
    assert "is it the address of --admin?" in " ".join(done.output.split())


def test_too_few_descriptors_and_ports_are_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_server(Rule()) as server, monkeypatch.context() as patch:
        patch.setattr("loadtest.crew.raise_file_limit", lambda wanted: 500)
        done = command(server.url, "--connections", "20000")
        assert done.exit_code == 2
        assert "a process needs 10100 descriptors, 10000 of them for connections" in " ".join(done.output.split())
        patch.undo()
        patch.setattr("loadtest.churn.run._spreads", lambda target: False)
        done = command(server.url, "--connections", "80000", "--processes", "50")
    assert done.exit_code == 2
    assert "80000 connections from one address need as many ports" in " ".join(done.output.split())


def test_more_bytes_than_the_limit_are_not_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("loadtest.churn.run.BYTES", 100_000)
    with slow_server(Rule(large=50_000)) as server:
        done = command(server.url, *SMALL, "--deadline", "1")
    assert done.exit_code == 2
    assert "give a URL with a smaller response" in " ".join(done.output.split())
    monkeypatch.setattr("loadtest.churn.run.BYTES", 2_000_000)
    found = churned(tmp_path, Rule(idle=0.5, large=50_000), "--deadline", "0.5", "--duration", "60")
    assert "which is the limit" in found["stopped"]
    assert found["seconds"] < 60


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    with slow_server(Rule(idle=0.5)) as server:
        arguments = ("--connections", "30", "--duration", "100", "--deadline", "0.5", "--json", str(file))
        with measuring("churn", server.url, *arguments) as process:
            while server.requests < 101:
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    found = json.loads(file.read_text())
    assert found["interrupted"] is True
    assert found["answered"]["200"] >= 99  # two came before the run: a request, and what is no HTTP
    assert "Interrupted: this is what was measured until then." in output


def test_ctrl_c_before_anything_was_measured_is_one_line() -> None:
    with slow_server(Rule()) as server, measuring("churn", server.url, *SMALL) as process:
        server.wait_for(3)  # the deadline is being measured
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Interrupted before there was a result." in output
    assert "Traceback" not in output


class InterruptedAudit:
    """Asks nothing, and is interrupted while it waits for the server's last counts."""

    def __init__(self, *_: object) -> None:
        self.found = Audited()

    def begin(self, *_: object) -> None:
        pass

    ask = answer = begin

    def end(self, _: object) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_while_the_server_counts_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(churn_run, "Audit", InterruptedAudit)
    with slow_server(Rule(idle=0.5)) as server:
        file = tmp_path / "churn.json"
        done = command(server.url, *SMALL, "--deadline", "0.5", "--admin", server.url, "--json", str(file))
    assert done.exit_code == 130, done.output
    found = json.loads(file.read_text())
    assert found["interrupted"] is True
    assert found["opened"] >= 30


def test_ctrl_c_while_the_clients_end_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_exit(monkeypatch)
    file = tmp_path / "churn.json"
    with slow_server(Rule(idle=0.5)) as server:
        done = command(server.url, *SMALL, "--deadline", "0.5", "--json", str(file))
    assert done.exit_code == 130, done.output
    found = json.loads(file.read_text())
    assert found["interrupted"] is True
    assert found["opened"] >= 30
