"""`python -m loadtest check` as a command: its files and codes, and every target that it must not or cannot attack."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trustme
from click.testing import CliRunner, Result

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest import target
from loadtest.check import run as check_run
from loadtest.check.grade import Honest
from loadtest.check.kinds import Deadline
from loadtest.check.scripts import DOWN, Seen, scripts
from loadtest.command import main
from loadtest.crew import Child
from loadtest.target import ForbiddenTargetError, resolve
from loadtest.wire import Answers
from tests.support.load_command import measuring
from tests.support.net import certificates
from tests.support.slow_servers import Rule, slow_server

LOOPBACK = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
ROOT = Path(__file__).parents[2]
QUICK = ("--limit", "0.6", "--connections", "0", "--only", "half-close")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments])


def test_it_writes_json_html_and_junit(tmp_path: Path) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "html", "junit")}
    with slow_server(Rule("absolute", 0.2)) as server:
        flags = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
        done = run(server.url, *QUICK, "silent", *flags, "--fail-below", "a")
    assert done.exit_code == 0, done.output
    report = json.loads(files["json"].read_text())
    assert (report["target"], report["grade"], report["interrupted"]) == (server.url, "A", False)
    assert [attack["name"] for attack in report["attacks"]] == ["silent", "half-close"]
    assert files["html"].read_text().startswith("<!doctype html>")
    assert files["junit"].read_text().startswith("<?xml")


def test_a_grade_below_the_wanted_one_is_a_failure() -> None:
    with slow_server(Rule("none")) as server:
        done = run(server.url, "--limit", "0.6", "--connections", "0", "--only", "silent", "--fail-below", "E")
    assert done.exit_code == 1
    assert "The grade F is below E." in done.output


def test_what_cannot_be_written_is_said() -> None:
    with slow_server(Rule("absolute", 0.2)) as server:
        done = run(server.url, *QUICK, "--json", "/proc/report.json")
    assert done.exit_code == 1
    assert "/proc/report.json cannot be written" in done.output


@pytest.mark.parametrize("flag", ["--json", "--html", "--junit"])
def test_a_folder_that_is_missing_is_said_before_anything_is_measured(flag: str, tmp_path: Path) -> None:
    done = run("http://nowhere.invalid/", flag, str(tmp_path / "missing" / "report"))
    assert done.exit_code == 2
    assert f"there is no folder {tmp_path}/missing" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["ftp://127.0.0.1/"], "no URL of HTTP"),
        (["http://127.0.0.1:99999/"], "is no URL"),
        (["http:///x"], "no URL of HTTP"),
        (["http://user@127.0.0.1/"], "user name"),
        (["http://127.0.0.1/a b"], "spaces"),
        (["http://127.0.0.1:1/", "--only", "nothing"], "nothing is none of silent"),
        (["http://127.0.0.1:1/", "http://127.0.0.1:2/"], "one URL at a time"),
        (["http://127.0.0.1:1/", "--limit", "0"], "--limit"),
        (["http://127.0.0.1:1/", "--fail-below", "G"], "--fail-below"),
        (["http://93.184.215.14/"], "is a public address"),
        (["http://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/"], "is a public address"),
        (["http://[::ffff:93.184.215.14]/"], "is a public address"),
        (["http://[2002:5db8:d70e::1]/"], "--i-own-this-target 2002:5db8:d70e::1"),
        (["http://[2002:7f00:1::1]/"], "is a public address"),
        (["http://10.1.2.3/"], "is not loopback"),
        (["http://192.168.1.1/", "--i-own-this-target", "192.168.1.2"], "is not loopback"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_arguments_and_targets_of_others_are_refused(arguments: list[str], text: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert text in " ".join(done.output.split())


def answers(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let every name resolve to these addresses; return the names that were asked for."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def test_a_name_of_a_public_address_is_refused_even_to_the_owner_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "93.184.215.14")
    with pytest.raises(
        ForbiddenTargetError, match=r"localhost resolves to 93\.184\.215\.14, which is a public address"
    ):
        resolve("http://localhost/", ["localhost"])


def test_one_public_address_among_loopback_ones_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "127.0.0.1", "93.184.215.14")
    with pytest.raises(ForbiddenTargetError):
        resolve("http://localhost/")


def test_the_owner_names_a_private_host_and_a_public_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_first_that_listens", lambda addresses: addresses[0])
    answers(monkeypatch, "10.1.2.3")
    assert resolve("http://backend:8000/x", ["Backend"]).address == ("10.1.2.3", 8000)
    answers(monkeypatch, "93.184.215.14")
    assert resolve("http://backend:8000/x", ["93.184.215.14"]).address == ("93.184.215.14", 8000)


def test_a_link_local_address_keeps_its_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ("fe80::1", 8000, 0, 7)
    monkeypatch.setattr(target, "_first_that_listens", lambda addresses: addresses[0])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET6, 1, 6, "", whole)])
    assert resolve("http://[fe80::1%eth0]:8000/", ["fe80::1"]).address == whole


def test_an_address_of_a_family_that_the_kernel_does_not_have_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutIPv6(socket.socket):
        def __init__(self, family: int = -1, *more: Any, **options: Any) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
            super().__init__(family, *more, **options)

    with slow_server(Rule()) as server:
        six = (socket.AF_INET6, 1, 6, "", ("::1", server.port, 0, 0))
        four = (socket.AF_INET, 1, 6, "", ("127.0.0.1", server.port))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [six, four])
        with monkeypatch.context() as kernel:
            kernel.setattr(socket, "socket", WithoutIPv6)
            assert resolve("http://localhost/").address == four[-1]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [six])
        monkeypatch.setattr(socket, "socket", WithoutIPv6)
        with pytest.raises(target.UnusableTargetError, match=os.strerror(errno.EAFNOSUPPORT)):
            resolve("http://localhost/")


def test_a_name_is_resolved_once_and_everything_goes_to_what_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_server(Rule("absolute", 0.2)) as server:
        asked = answers(monkeypatch, "127.0.0.1")
        done = run(f"http://rebound.test:{server.port}/", *QUICK)
    assert done.exit_code == 0, done.output
    assert asked == ["rebound.test"]


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    done = run("http://nowhere.invalid/")
    assert done.exit_code == 3
    assert "nowhere.invalid does not resolve" in done.output


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        done = run(f"http://127.0.0.1:{free.getsockname()[1]}/")
    assert done.exit_code == 3
    assert "Connection refused" in done.output


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(raw=b"220 mail.example ESMTP\r\n"), "speaks no HTTP/1.1"),
        (Rule(raw=b""), "closes the connection without a complete answer; is it https?"),
        (
            Rule(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
            "closes the connection without a complete answer\n",
        ),
        (Rule(status="302 Found", fields="Location: /login"), "redirects (302) to /login: give the URL that answers"),
        (
            Rule(status="400 Bad Request"),
            "answers 400 to an honest request: is it https, or does it want a client cert",
        ),
        (Rule(status="500 Internal Server Error"), "answers 500: it fails honest requests"),
        (Rule(status="429 Too Many Requests"), "answers 429: it fails honest requests"),
        (Rule(broken="429 Slow Down", breaks=4), "at 50 a second (100 status 429): it cannot be graded"),
    ],
    ids=["mail", "silence", "half", "redirect", "400", "500", "429", "limited"],
)
def test_a_target_that_does_not_answer_honest_requests(rule: Rule, text: str) -> None:
    with slow_server(rule) as server:
        done = run(server.url)
    assert done.exit_code == 3
    assert text in done.output


def test_a_response_that_is_not_read_to_its_end_is_no_fault_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "MOST", 2 << 20)
    with slow_server(Rule(large=4 << 20)) as server:
        done = run(server.url)
    assert done.exit_code == 3
    assert done.output == f"Error: {server.url}: the response is larger than 2 MiB: give a URL with a smaller one\n"


def test_a_target_that_accepts_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target.ask, "__defaults__", (0.2,))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = run(f"http://127.0.0.1:{listener.getsockname()[1]}/")
    assert done.exit_code == 3
    assert "does not answer within 0.2 s" in done.output


def test_an_answer_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target.ask, "__defaults__", (0.2,))
    open_ = []

    def answer(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                open_.append(listener.accept()[0])
                open_[-1].sendall(b"HTTP/1.1 200 OK\r\n\r\ndata: 1\n\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=answer, args=(listener,))
        thread.start()
        done = run(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        thread.join()
    for connection in open_:
        connection.close()
    assert done.exit_code == 3
    assert "does not end its answer within 0.2 s" in done.output


def test_http_where_tls_is_spoken_and_the_other_way_round() -> None:
    with slow_server(Rule(), certificates().server) as server:
        done = run(server.url)
    assert done.exit_code == 3
    with slow_server(Rule("absolute", 0.1, end="408")) as server:
        done = run(server.url.replace("http:", "https:"))
    assert done.exit_code == 3
    assert "TLS" in done.output


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_target_that_wants_a_client_certificate(version: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = version
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    with slow_server(Rule(), context) as server:
        done = run(server.url.replace("http:", "https:"))
    assert done.exit_code == 3
    assert "perhaps it" in done.output
    assert "wants a client certificate" in done.output


def test_too_few_descriptors_are_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.crew.raise_file_limit", lambda wanted: 1000)
    with slow_server(Rule()) as server:
        done = run(server.url, "--connections", "4000")
    assert done.exit_code == 2
    text = "a process needs 4100 descriptors, 4000 of them for connections, and the limit is 1000"
    assert f"{text}: raise it (ulimit -n), or give fewer --connections" in " ".join(done.output.split())


def test_where_ports_run_out_what_was_measured_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    monkeypatch.setattr(check_run, "need_ports", refused_once_crowds_come())
    with slow_server(Rule("absolute", 0.3)) as server:
        arguments = ("--only", "silent", "half-close", "--limit", "0.6", "--connections", "8", "--json", str(file))
        done = run(server.url, *arguments)
    assert done.exit_code == 2, done.output
    assert "Error: no free port" in done.output
    report = json.loads(file.read_text())
    assert (report["interrupted"], report["stopped"], report["grade"]) == (True, "no free port", "-")
    silent, _ = report["attacks"]
    assert silent["seconds"] == pytest.approx(0.3, abs=0.1)


def refused_once_crowds_come() -> Callable[[Iterable[str]], None]:
    counted = iter(range(9))

    def need_ports(troubles: Iterable[str]) -> None:
        # the first counts are those of honest clients in calm
        if isinstance(troubles, Counter) and next(counted):
            raise ForbiddenTargetError("no free port")

    return need_ports


@pytest.mark.parametrize("calm", [True, False])
def test_no_ports_for_honest_clients_are_not_the_servers_fault(calm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_port(*_: object) -> int:
        return errno.EADDRNOTAVAIL

    with slow_server(Rule("absolute", 0.3)) as server:
        plan = check_run.Plan(resolve(server.url), frozenset({"silent"}), 0.5, 8)
        with check_run.Check(plan, lambda *_: None) as check:
            monkeypatch.setattr("loadtest.line.socket.socket.connect_ex", no_port)
            monkeypatch.setattr("loadtest.target.Target.connect", connect_without_ports)
            with pytest.raises(ForbiddenTargetError, match="no free port is left"):
                if calm:
                    check.prepare()
                else:
                    check._recovered()


def connect_without_ports(*_: object) -> socket.socket:
    raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))


def test_an_address_of_a_family_that_is_off_is_no_lack_of_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(endpoint: socket.socket, address: tuple[Any, ...]) -> None:
        wrong = errno.EADDRNOTAVAIL if ":" in address[0] else errno.ECONNREFUSED
        raise OSError(wrong, os.strerror(wrong))

    both = [(family, socket.SOCK_STREAM, 0, "", (host, 1)) for family, host in LOOPBACK]
    monkeypatch.setattr("loadtest.target.socket.getaddrinfo", lambda *_, **__: both)
    monkeypatch.setattr("loadtest.target.socket.socket.connect", connect)
    done = run("http://localhost:1/")
    assert done.exit_code == 3, done.output
    assert "Connection refused" in done.output


def test_no_ports_at_the_start_are_not_the_servers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.target.socket.socket.connect", connect_without_ports)
    done = run("http://127.0.0.1:1/")
    assert done.exit_code == 2, done.output
    assert "no free port is left on this machine" in " ".join(done.output.split())


def test_ctrl_c_reports_what_was_measured_until_then(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    arguments = ("--limit", "100", "--only", "silent", "--json", str(file))
    with slow_server(Rule("none")) as server, measuring("check", server.url, *arguments) as process:
        # the first request, those of calm, and some that are measured
        server.wait_for(110)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    report = json.loads(file.read_text())
    assert (report["interrupted"], report["grade"]) == (True, "-")
    assert report["attacks"][0]["verdict"] == "unfinished"
    assert "Interrupted" in output


@pytest.mark.parametrize("kind", [int, list], ids=["progress", "last"])
def test_ctrl_c_while_a_message_is_taken_keeps_it(
    kind: type[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    receive = Child.receive

    def interrupted(child: Child) -> object:
        message = receive(child)
        if isinstance(message, kind):
            monkeypatch.setattr(Child, "receive", receive)
            signal.raise_signal(signal.SIGINT)
        return message

    monkeypatch.setattr(Child, "receive", interrupted)
    with slow_server(Rule("none")) as server:
        done = run(server.url, *QUICK[:-1], "silent", "--json", str(file))
    assert done.exit_code == 130, done.output
    report = json.loads(file.read_text())
    assert (report["interrupted"], report["grade"]) == (True, "-")


def test_ctrl_c_during_the_last_honest_request_reports_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(check_run, "_gone", interrupted)
    file = tmp_path / "report.json"
    with slow_server(Rule("absolute", 0.3)) as server:
        done = run(server.url, *QUICK, "--json", str(file))
    assert done.exit_code == 130, done.output
    report = json.loads(file.read_text())
    assert (report["interrupted"], report["attacks"][0]["seconds"] is not None) == (True, True)


def test_a_server_that_dies_is_reported_not_raised() -> None:
    with (
        slow_server(Rule("none")) as server,
        measuring("check", server.url, "--limit", "1", "--only", "silent") as process,
    ):
        server.wait_for(40)
        server.stop()
        output, _ = process.communicate(timeout=50)
    assert process.returncode == 0, output
    assert "Traceback" not in output


def test_a_server_that_restarts_shows_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    names = frozenset({"silent", "stalled-body"})
    with ExitStack() as stack:
        first = stack.enter_context(slow_server(Rule("none")))
        plan = check_run.Plan(resolve(first.url), names, 100.0, 0)
        check = stack.enter_context(check_run.Check(plan, lambda *_: None))
        all_of_them = first.connections + len(scripts(check._facts, names))

        def end() -> None:
            first.wait_for(all_of_them)
            first.stop()

        ending = Thread(target=end)
        ending.start()
        check_run.collect([check])
        ending.join()

        def restarting(*arguments: Any) -> Answers:
            monkeypatch.setattr(check_run, "ask", target.ask)
            try:
                return target.ask(*arguments)
            finally:
                stack.enter_context(slow_server(Rule("none"), port=first.port))

        monkeypatch.setattr(check_run, "ask", restarting)
        check.attack()
        report = check.report()
    assert report.gone == ""
    assert [one.deadline for one in report.outcomes] == [Deadline()] * 2
    assert [one.why for one in report.outcomes] == [f"not measured: {DOWN}"] * 2


def test_a_refusal_that_honest_clients_do_not_get_in_calm_is_no_service() -> None:
    """The first three connections are those that look at the target."""
    with slow_server(Rule("absolute", 0.3, breaks=3, broken="429 Too Many Requests")) as server:
        done = run(server.url, "--only", "silent", "--limit", "0.5", "--connections", "8")
    assert done.exit_code == 3, done.output
    assert "answers 0 of 30 honest requests" in done.output


def test_a_status_that_the_url_has_in_calm_is_a_service() -> None:
    with slow_server(Rule("absolute", 0.3, status="404 Not Found")) as server:
        done = run(server.url, "--only", "silent", "--limit", "0.5", "--connections", "8")
    assert done.exit_code == 0, done.output
    assert "(unknown, answers 404)" in done.output


def test_a_server_that_closes_each_connection_is_told() -> None:
    with slow_server(Rule("absolute", 0.3, closes=True)) as server:
        done = run(server.url, "--only", "idle", "--limit", "0.5", "--connections", "0")
    assert done.exit_code == 0, done.output
    assert "(unknown, closes each connection)" in done.output


@pytest.mark.parametrize(("large", "verdict"), [(50_000, "not applicable"), (1 << 21, "fail")])
def test_a_response_that_fits_the_buffers_does_not_make_a_server_pass_that_closes(large: int, verdict: str) -> None:
    with slow_server(Rule("none", closes=True, large=large)) as server:
        done = run(server.url, "--only", "slow-read", "--limit", "0.6", "--connections", "0")
    assert done.exit_code == 0, done.output
    assert f"│ {verdict} " in done.output
    assert ("give a URL with a larger one" in " ".join(done.output.split())) is (verdict != "fail")


@pytest.mark.parametrize(("large", "verdict"), [(300, "not applicable"), (10_000, "fail")])
def test_the_last_request_that_a_connection_may_make_is_no_deadline(large: int, verdict: str) -> None:
    with slow_server(Rule("none", drops=101, large=large)) as server:
        done = run(server.url, "--only", "slow-read", "--limit", "0.6", "--connections", "0")
    assert done.exit_code == 0, done.output
    assert f"│ {verdict} " in done.output


def test_what_could_not_be_measured_gets_no_advice_and_counts_with_what_was_felt() -> None:
    with slow_server(Rule()) as server:
        plan = check_run.Plan(resolve(server.url), frozenset({"silent"}), 0.5, 8)
        with check_run.Check(plan, lambda *_: None) as check:
            check._seen = [Seen("silent", "stalled", 0.0, None, 0.0, trouble="Connection refused")]
            check._felt = {"silent": (Honest(1, 9, 5.0), 8)}
            report = check.report()
    (outcome,) = report.outcomes
    assert (outcome.verdict, outcome.why, outcome.advice) == ("fail", "not measured: Connection refused", "")
    assert (outcome.honest, report.grade) == (Honest(1, 9, 5.0), "F")


def test_a_check_without_a_crowd_needs_no_descriptors_for_honest_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    needed: list[int] = []
    monkeypatch.setattr(check_run, "need_descriptors", needed.append)
    with slow_server(Rule("absolute", 0.3)) as server:
        for connections in (0, 8):
            run(server.url, "--only", "silent", "--limit", "0.5", "--connections", str(connections))
    assert needed == [0, 200]
