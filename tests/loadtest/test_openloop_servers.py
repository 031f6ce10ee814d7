"""`python -m loadtest http` against real servers: what a closed loop would hide is counted, and nothing is lost.

A busy machine makes latencies longer, never shorter: all bounds are lower ones, or counts.
"""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest import line
from loadtest.command import main
from loadtest.openloop import run as openloop_run
from loadtest.openloop.client import Client, Plan, Tally, _Connection
from loadtest.target import resolve
from tests.support.load_command import interrupt_exit, measuring
from tests.support.net import certificates
from tests.support.slow_servers import Rule, slow_server

ROOT = Path(__file__).parents[2]


@pytest.fixture
def client_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is, it is not the client that is too slow for what is asked."""
    monkeypatch.setattr(Tally, "invalid", "")


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["http", *arguments])


def asked(
    url: str, rate: float, seconds: float, connections: int = 10, patience: float = 30.0, *, reuse: bool = True
) -> Tally:
    """Ask in this process."""
    plan = Plan(resolve(url), rate, seconds, connections, patience, reuse=reuse)
    return Client(plan).run(monotonic())


def milliseconds(tally: Tally, percentile: float) -> float:
    return float(tally.latency.get_value_at_percentile(percentile)) / 1000


def test_a_stall_of_a_second_is_felt_by_all_that_were_due_meanwhile() -> None:
    with slow_server(Rule(stall=(50, 1.0))) as server:
        tally = asked(server.url, 100, 2.0)
    assert (tally.due, tally.sent, tally.ok, dict(tally.errors)) == (200, 200, 200, {})
    # a hundred requests were due in that second, evenly: a closed loop of ten connections would count ten
    assert tally.latency.get_max_value() / 1000 > 900
    assert milliseconds(tally, 99.9) > 900
    assert milliseconds(tally, 90) > 600
    assert milliseconds(tally, 75) > 300


def test_a_delay_is_in_every_latency() -> None:
    with slow_server(Rule(delay=0.1)) as server:
        tally = asked(server.url, 50, 0.6)
    assert tally.ok == 30
    assert tally.latency.get_min_value() / 1000 > 99


def test_latency_counts_from_the_time_a_request_was_due_when_connections_are_too_few() -> None:
    with slow_server(Rule(delay=0.1)) as server:
        tally = asked(server.url, 20, 1.0, connections=1)
    # ten per second can be answered: the last of twenty waits a second more than the first
    assert tally.ok == 20
    assert tally.last >= 2.0
    assert tally.latency.get_max_value() / 1000 > 900


def test_what_is_never_answered_counts_with_the_time_that_it_waited() -> None:
    with slow_server(Rule(delay=30.0)) as server:
        tally = asked(server.url, 20, 0.5, connections=4, patience=0.4)
    assert (tally.due, tally.ok) == (10, 0)
    assert tally.errors.total() == 10
    assert set(tally.errors) <= {"no answer in time", "not sent in time"}
    assert tally.latency.get_total_count() == 10
    assert tally.latency.get_min_value() / 1000 >= 399


@pytest.mark.parametrize("connections", [100, 1], ids=["sent", "queued"])
def test_what_waits_when_a_run_is_stopped_counts_with_the_time_that_it_waited(connections: int) -> None:
    with slow_server(Rule(delay=30.0)) as server:
        client = Client(Plan(resolve(server.url), 50, 60.0, connections, 30.0))
        tally = client.run(monotonic(), lambda: client.tally.due >= 40)
    assert tally.interrupted
    assert (tally.ok, dict(tally.errors), tally.latency.get_total_count()) == (0, {}, tally.due)
    # evenly from nothing to the time since the first was due
    assert milliseconds(tally, 100) > 700
    assert milliseconds(tally, 75) > 500


def test_a_server_that_closes_each_connection_is_asked_on_new_ones() -> None:
    with slow_server(Rule(closes=True)) as server:
        tally = asked(server.url, 50, 0.6)
        assert server.connections >= 30
    assert (tally.ok, dict(tally.errors)) == (30, {})


def test_a_request_per_connection() -> None:
    with slow_server(Rule()) as server:
        tally = asked(server.url, 50, 0.6, reuse=False)
        # one more to see if anybody listens
        assert server.connections == 31
    assert tally.ok == 30


def test_over_tls() -> None:
    with slow_server(Rule(), certificates().server) as server:
        tally = asked(server.url.replace("http:", "https:"), 50, 0.4)
    assert (tally.ok, dict(tally.errors)) == (20, {})


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (Rule(status="503 Busy"), "status 503"),
        (Rule(raw=b"nonsense\r\n\r\n"), "no HTTP"),
        (Rule(raw=b""), "closed without an answer"),
    ],
)
def test_errors_are_counted_by_their_kind(rule: Rule, kind: str) -> None:
    with slow_server(rule) as server:
        tally = asked(server.url, 50, 0.4)
    assert (tally.due, tally.ok, dict(tally.errors)) == (20, 0, {kind: 20})


def test_a_complete_answer_that_comes_with_a_reset_is_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client(Plan(resolve(f"http://127.0.0.1:{listener.getsockname()[1]}/"), 1, 1.0, 1, 30.0))
        listener.accept()[0].close()  # of what looked if anybody listens
        connection = _Connection(client, monotonic())
        connection.connect()
        served, _ = listener.accept()
        client.loop.turn(monotonic() + 30.0)
        assert served.recv(65536) == client.request
        # both are there when the client looks
        served.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        line.close(served, reset=True)
        client.loop.turn(monotonic() + 30.0)
        client.loop.close()
    assert (client.tally.sent, client.tally.ok, dict(client.tally.errors)) == (1, 1, {})


def test_an_answer_after_the_patience_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # nothing gives up before it comes
    monkeypatch.setattr("loadtest.openloop.client._SWEEP", 60.0)
    with slow_server(Rule(delay=0.1)) as server:
        tally = asked(server.url, 50, 0.1, patience=0.05)
    assert (tally.due, tally.ok, dict(tally.errors)) == (5, 0, {"no answer in time": 5})
    assert tally.latency.get_min_value() / 1000 > 99


def test_a_server_that_has_gone_is_an_error_of_each_request() -> None:
    with slow_server(Rule()) as server:
        target = resolve(server.url)
    tally = Client(Plan(target, 50, 0.4, 10, 5.0)).run(monotonic())
    assert dict(tally.errors) == {"Connection refused": 20}
    assert tally.sent == 0


@pytest.mark.usefixtures("client_in_time")
def test_the_command_writes_the_figures_and_judges_them(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    arguments = ("--rate", "50", "--duration", "0.6", "--json", str(file))
    with slow_server(Rule(delay=0.1)) as server:
        bad = command(server.url, *arguments, "--fail-if", "p50>50ms")
        good = command(server.url, *arguments, "--fail-if", "p50<50ms", "--fail-if", "errors>0", "--processes", "2")
    assert bad.exit_code == 1, bad.output
    assert good.exit_code == 0, good.output
    assert "Failed: p50>50ms" in bad.output
    written: dict[str, Any] = json.loads(file.read_text())
    assert (written["sent"], written["ok"], written["errors"], written["processes"]) == (30, 30, 0, 2)
    assert 0 < written["rate"] <= 50.0
    assert written["latency_ms"]["p50"] > 99
    assert written["valid"] is True


def test_a_server_that_is_slower_than_the_rate_is_said_to_be() -> None:
    with slow_server(Rule(delay=0.5)) as server:
        done = command(server.url, "--rate", "50", "--duration", "1", "--connections", "2", "--patience", "1")
    assert "The server is slower than the rate" in done.output
    assert "not sent in time" in done.output


def test_a_server_that_answers_all_but_later_is_said_to_be_slower() -> None:
    with slow_server(Rule(delay=0.1)) as server:
        done = command(server.url, "--rate", "50", "--duration", "0.4", "--connections", "1")
        assert "may be slower than the rate: the run took" in done.output
        assert "slower" not in command(server.url, "--rate", "20", "--duration", "0.4").output
    assert "20 of 20 answered" in done.output


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["http://127.0.0.1:1/", "--rate", "5"], 3, "Connection refused"),
        (["http://10.1.2.3/", "--rate", "5"], 2, "is not loopback"),
        (["http://93.184.215.14/", "--rate", "5"], 2, "is a public address"),
        (["http://127.0.0.1:1/"], 2, "Missing option '--rate'"),
        (["http://127.0.0.1:1/", "--rate", "0"], 2, "--rate"),
        (["http://127.0.0.1:1/", "--rate", "5", "--fail-if", "p99>50"], 2, "give p99 with us or ms or s"),
        (["http://127.0.0.1:1/", "--rate", "5", "--search"], 2, "--search needs a --fail-if"),
        (["nonsense", "--rate", "5"], 2, "no URL of HTTP"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else None,
)
def test_bad_input_is_one_clear_line(arguments: list[str], code: int, text: str) -> None:
    done = command(*arguments)
    assert done.exit_code == code
    assert text in " ".join(done.output.split())


def test_a_run_of_no_requests_is_refused() -> None:
    with slow_server(Rule()) as server:
        done = command(server.url, "--rate", "0.5", "--duration", "1")
    assert done.exit_code == 2
    assert "no request is due within the --duration at this --rate" in done.output


@pytest.mark.usefixtures("client_in_time")
def test_requests_that_are_refused_fail_a_run_however_fast_they_are() -> None:
    with slow_server(Rule(breaks=2)) as server:
        done = command(server.url, "--rate", "50", "--duration", "0.2", "--fail-if", "p99>1000s")
    assert done.exit_code == 1, done.output
    assert "Failed: errors>1%" in done.output


@pytest.mark.usefixtures("client_in_time")
@pytest.mark.parametrize(("conditions", "code"), [((), 3), (("--fail-if", "errors>100%"), 0)], ids=["none", "own"])
def test_a_run_without_any_answer_has_measured_nothing(conditions: tuple[str, ...], code: int) -> None:
    with slow_server(Rule(delay=0.5)) as server:
        done = command(server.url, "--rate", "50", "--duration", "0.2", "--patience", "0.01", *conditions)
    assert "0 of 10 answered" in done.output
    assert done.exit_code == code


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(status="500 Broken"), "answers 500"),
        (Rule(status="404 Not Found"), "answers 404: every request would be an error"),
        (Rule(status="301 Moved", fields="Location: /new"), "redirects (301) to /new"),
        (Rule(raw=b"SSH-2.0-x\r\n"), "speaks no HTTP"),
    ],
)
def test_a_target_that_cannot_be_measured(rule: Rule, text: str) -> None:
    with slow_server(rule) as server:
        done = command(server.url, "--rate", "5")
    assert done.exit_code == 3
    assert text in done.output


def test_a_server_that_closes_is_told(tmp_path: Path) -> None:
    with slow_server(Rule(closes=True)) as server:
        done = command(server.url, "--rate", "20", "--duration", "0.5")
    assert "closes each connection" in done.output
    assert "10 of 10 answered" in done.output


def test_too_few_descriptors_are_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.crew.raise_file_limit", lambda wanted: 100)
    with slow_server(Rule()) as server:
        done = command(server.url, "--rate", "5", "--connections", "500", "--processes", "1")
    assert done.exit_code == 2
    assert "a process needs 600 descriptors, 500 of them for connections" in " ".join(done.output.split())
    assert "fewer" not in done.output, "the limit is too low for any"


def test_no_descriptors_in_the_middle_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_server(Rule()) as server:
        target = resolve(server.url)

    def full(*_: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("loadtest.line.socket.socket", full)
    tally = Client(Plan(target, 50, 0.2, 10, 5.0)).run(monotonic())
    assert dict(tally.errors) == {"Too many open files": 10}


@pytest.mark.usefixtures("client_in_time")
def test_a_search_ends_with_the_highest_rate(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    with slow_server(Rule(delay=0.1)) as server:
        done = command(server.url, "--rate", "20", "--duration", "0.5", "--connections", "4", "--patience", "1",
                       "--fail-if", "p99>400ms", "--search", "--json", str(file))  # fmt: skip
    assert done.exit_code == 0, done.output
    # four connections carry forty per second; in half a second a queue of 300 ms can be built up beside
    written = json.loads(file.read_text())
    assert 5 <= written["wanted_rate"] == written["found"] <= 80
    assert len(written["search"]) > 2
    assert written["found"] == max(one["wanted_rate"] for one in written["search"] if one["holds"])


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    with slow_server(Rule()) as server:
        arguments = ("--rate", "50", "--duration", "100", "--json", str(file))
        with measuring("http", server.url, *arguments) as process:
            while server.requests < 30:
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    written = json.loads(file.read_text())
    assert written["interrupted"] is True
    assert 29 <= written["ok"] < 4000
    assert "Interrupted" in output


@pytest.mark.parametrize("more", [(), ("--search", "--fail-if", "p99>5s")])
def test_ctrl_c_while_the_clients_end_keeps_what_was_measured(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_exit(monkeypatch)
    file = tmp_path / "figures.json"
    with slow_server(Rule()) as server:
        done = command(server.url, "--rate", "50", "--duration", "0.2", "--json", str(file), *more)
    assert done.exit_code == 130, done.output
    written = json.loads(file.read_text())
    assert (written["ok"], written["interrupted"], len(written.get("search", [0]))) == (10, True, 1)


@pytest.mark.usefixtures("client_in_time")
def test_ctrl_c_between_two_runs_of_a_search_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(result: openloop_run.Result) -> list[str]:
        if result.plan.rate == 100:
            signal.raise_signal(signal.SIGINT)
        return []

    monkeypatch.setattr("loadtest.openloop.command._lines", lines)
    file = tmp_path / "figures.json"
    with slow_server(Rule()) as server:
        done = command(server.url, "--rate", "50", "--duration", "0.2", "--search", "--fail-if", "p99>5s",
                       "--json", str(file))  # fmt: skip
    assert done.exit_code == 130, done.output
    written = json.loads(file.read_text())
    assert (written["found"], [run["interrupted"] for run in written["search"]]) == (100, [False, False, True])
