"""`deadlined run` and `deadlined proxy` in front of uvicorn: real processes and sockets."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from deadlined.runtime import LOOPS
from tests.service.command.guards import (
    ON_PORT,
    ON_SOCKET,
    Guard,
    ending,
    guards,
    is_there,
    kill,
    left_in,
    pid_of,
    uvicorn,
)
from tests.support.admin import admin_of
from tests.support.command import Process, assert_one_line, launched, read_all, rest_of, run, wait_until_starting

# uvicorn is a package of that extra


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    with guards(tmp_path) as start:
        yield start


def asked(process: Process, path: str = "/") -> dict[str, Any]:
    """Return what the application behind the guard has seen."""
    head, _, body = process.get(path).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 "), head
    found: dict[str, Any] = json.loads(body)
    return found


def test_an_upstream_is_told_of_the_certificate_of_a_client(guard: Guard, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    own = authority.issue_cert("client.example")
    tls = ("--certfile", "server.pem", "--client-ca", "ca.pem", "--client-certificate", "optional")
    process = guard("run", *tls, "--", *ON_SOCKET)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    for certificate in (None, own):
        if certificate is not None:
            certificate.configure_cert(context)
        with httpx.Client(verify=context) as client:
            headers = client.get(f"https://localhost:{process.port}/", headers={"Client-Cert": ":AAAA:"}).json()[
                "headers"
            ]
        if certificate is None:
            assert "client-cert" not in headers
        else:
            told = base64.b64decode(headers["client-cert"].strip(":"))
            assert ssl.DER_cert_to_PEM_cert(told).encode() == certificate.cert_chain_pems[0].bytes()


def wait_until_refused(path: str) -> None:
    """Wait until nobody listens on a unix socket any more."""
    with suppress(ConnectionRefusedError, FileNotFoundError):
        while True:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(path)
            time.sleep(0.01)


# run


@pytest.mark.parametrize("loop", LOOPS)
def test_it_starts_the_command_and_guards_it_and_leaves_nothing(guard: Guard, tmp_path: Path, loop: str) -> None:
    process = guard("run", "--loop", loop, "--", *ON_SOCKET)
    command = pid_of(process)
    assert process.url.startswith("http://127.0.0.1:")
    found = asked(process, "/shop")
    assert (found["pid"], found["path"]) == (command, "/shop")
    assert left_in(tmp_path)
    process.signal()
    assert process.end() == (0, "")
    events = [line["event"] for line in process.lines if line["event"] not in ("request", "connection")]
    assert events == [
        "command started",
        "command accepts connections",
        "listening",
        "draining",
        "stopping the command",
        "command ended",
        "stopped",
    ]
    assert not is_there(command)
    assert left_in(tmp_path) == []


def test_it_guards_a_command_at_a_port(guard: Guard) -> None:
    process = guard("run", "--", *ON_PORT)
    assert asked(process)["pid"] == pid_of(process)
    assert process.events("command started")[0]["address"].startswith("127.0.0.1:")
    process.signal()
    assert process.end() == (0, "")


def test_one_that_is_killed_is_replaced_and_the_next_request_waits_for_it(guard: Guard) -> None:
    process = guard("run", "--", *ON_SOCKET)
    first = asked(process)["pid"]
    kill(first)
    ended = process.wait_for("command ended")
    assert (ended["pid"], ended["signal"], ended["level"]) == (first, "SIGKILL", "warning")
    # it is started again, and does not listen yet
    second = asked(process)["pid"]
    assert second != first
    assert process.wait_for("command accepts connections")["pid"] == second
    process.signal()
    assert process.end() == (0, "")


def test_requests_wait_while_one_that_ends_answers_its_last(guard: Guard) -> None:
    """uvicorn listens no more from the signal on."""
    process = guard("run", "--", *ON_SOCKET)
    first = pid_of(process)
    with process.begin("/slow") as client:
        process.wait_until_busy()
        os.kill(first, signal.SIGTERM)
        wait_until_refused(process.events("command started")[0]["address"].removeprefix("unix:"))
        assert asked(process)["pid"] != first
        assert f'"pid": {first}' in read_all(client)
    assert process.wait_for("the command refuses connections")["pid"] == first
    assert process.wait_for("command ended")["pid"] == first
    process.signal()
    assert process.end() == (0, "")


def test_a_drain_answers_what_is_open_before_it_ends_the_command(guard: Guard) -> None:
    process = guard("run", "--drain", "1h", "--", *ON_SOCKET)
    with process.begin("/slow") as client:
        process.wait_until_busy()
        process.signal()
        process.wait_for("draining")
        assert '"/slow"' in read_all(client)
    assert process.end() == (0, "")
    events = [line["event"] for line in process.lines]
    assert events.index("request") < events.index("stopping the command")


def test_a_second_signal_ends_both_at_once(guard: Guard, tmp_path: Path) -> None:
    process = guard("run", "--drain", "1h", "--", *ON_SOCKET)
    command = pid_of(process)
    with process.begin("/endless") as client:
        process.wait_until_busy()
        process.signal()
        process.wait_for("draining")
        process.signal_later()
        assert read_all(client) == ""
        assert process.end() == (4, "")
    assert not is_there(command)
    assert left_in(tmp_path) == []


def test_ctrl_c_of_a_terminal_does_not_reach_the_command(guard: Guard) -> None:
    process = guard("run", "--drain", "1h", "--", *ON_SOCKET)
    with process.begin("/slow") as client:
        process.wait_until_busy()
        os.killpg(process.pid, signal.SIGINT)
        assert '"/slow"' in read_all(client)
    assert process.end() == (0, "")


def test_a_command_that_does_not_end_is_killed_by_a_second_signal(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(
        "import signal, socket, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('no', file=sys.stderr, flush=True))\n"
        "listener = socket.socket(socket.AF_UNIX)\nlistener.bind(sys.argv[1])\nlistener.listen()\n"
        "while True: listener.accept()[0].close()\n"
    )
    process = guard("run", "--drain", "1h", "--", sys.executable, "stubborn.py", "{uds}")
    command = pid_of(process)
    process.signal()
    process.wait_for("stopping the command")
    process.wait_until("no")
    process.signal_later()
    process.wait_for("the command did not end in time: killed")
    assert process.end() == (0, "")
    assert not is_there(command)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children")
def test_a_guard_that_is_killed_takes_the_command_along(guard: Guard) -> None:
    process = guard("run", "--", *ON_SOCKET)
    command = pid_of(process)
    with ending(command):
        process.signal(signal.SIGKILL)
        assert process.end()[0] == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_stop_while_the_command_starts_is_no_failure(tmp_path: Path, loop: str, number: signal.Signals) -> None:
    program = "import sys, time; print('starting', file=sys.stderr, flush=True); time.sleep(3600)"
    arguments = ["run", "--port", "0", "--loop", loop, "--", sys.executable, "-c", program, "{uds}"]
    with launched(*arguments, variables={"TMPDIR": str(tmp_path)}) as process:
        wait_until_starting(process)
        process.send_signal(number)
        out, err = rest_of(process)
    assert (process.returncode, err) == (0, "")
    events = [json.loads(line)["event"] for line in out.splitlines()]
    assert events == ["command started", "command ended", "stopped before it served"]
    assert left_in(tmp_path) == []


def test_wrong_commands_are_one_line(tmp_path: Path) -> None:
    ends = [sys.executable, "-S", "-c", "raise SystemExit(5)", "{port}"]
    for arguments, code, words in [
        (["no-such-program", "{uds}"], 2, ["cannot start no-such-program: No such file", "on PATH?"]),
        ([str(tmp_path), "{uds}"], 2, [f"cannot start {tmp_path}: Permission denied"]),
        (["uvicorn", "app:app"], 2, ["COMMAND must contain {uds} or {port}", "uvicorn app:app --uds {uds}"]),
        (ends, 1, ["has ended 3 times without accepting a connection", "lastly with code 5", "SystemExit(5)"]),
    ]:
        completed = run("run", "--port", "0", "--", *arguments, TMPDIR=str(tmp_path))
        assert_one_line(completed, code, *words)
    assert left_in(tmp_path) == []


# proxy


@pytest.fixture
def upstreams(tmp_path: Path) -> Iterator[list[str]]:
    with ExitStack() as stack:
        yield [stack.enter_context(uvicorn(tmp_path, name)) for name in ("one", "other")]


def test_a_proxy_guards_servers_that_run_already(guard: Guard, upstreams: list[str]) -> None:
    process = guard("proxy", *(word for address in upstreams for word in ("--upstream", address)))
    found = [asked(process) for _ in range(4)]
    assert len({each["pid"] for each in found}) == 2
    assert found[0]["headers"]["x-forwarded-proto"] == "http"
    process.signal()
    assert process.end() == (0, "")
    assert process.lines[-1]["requests"] == 4


def test_worker_processes_guard_one_port(guard: Guard, upstreams: list[str]) -> None:
    process = guard("proxy", "--upstream", upstreams[0], "--workers", "2")
    process.wait_for("listening")
    assert asked(process)["path"] == "/"
    process.signal()
    assert process.end() == (0, "")


def test_a_hangup_changes_the_deadlines_of_upstreams(guard: Guard, tmp_path: Path) -> None:
    file = tmp_path / "guard.toml"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        file.write_text(f"upstream = 'unix:{tmp_path}/silent'\nupstream_first_byte = '1h'\n")
        process = guard("proxy", "--config", str(file), "--admin", "127.0.0.1:0")
        admin = admin_of(process)
        file.write_text(f"upstream = 'unix:{tmp_path}/silent'\nupstream_first_byte = '10ms'\n")
        process.signal(signal.SIGHUP)
        assert process.wait_for("reloaded")["changed"] == {"upstream_first_byte": ["3600s", "10ms"]}
        assert process.get().startswith("HTTP/1.1 504 ")
        assert admin.get("/config").json["proxy_timeouts"]["upstream_first_byte"] == 0.01
        file.write_text("upstream = 'a:1'\n")
        process.signal(signal.SIGHUP)
        assert process.wait_for("reloaded")["needs_restart"] == ["upstream"]
        process.signal()
        assert process.end()[0] == 0


def test_an_upstream_that_is_not_there_is_answered_with_502(guard: Guard, tmp_path: Path) -> None:
    process = guard("proxy", "--upstream", f"unix:{tmp_path}/nobody")
    # neither the upstream nor the live page answers
    assert process.get().startswith("HTTP/1.1 502 ")
    assert process.get("/connections").startswith("HTTP/1.1 502 ")


def test_the_first_screen_says_what_is_guarded(tmp_path: Path) -> None:
    arguments = ["proxy", "--upstream", "127.0.0.1:1", "--upstream", "unix:/x", "--port", "0", "--log-format", "text"]
    with launched(*arguments) as process:
        assert process.stdout is not None
        (told,) = [line for line in (process.stdout.readline() for _ in range(2)) if "serving" in line]
        assert told == "  serving    proxy to 127.0.0.1:1, unix:/x\n"
        process.terminate()
        rest_of(process)
    assert process.returncode == 0
