"""The command, as a process: what it says, what it serves, how it ends."""

from __future__ import annotations

import contextlib
import json
import math
import os
import py_compile
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import click
import pytest
import trustme

from deadlined import __version__
from deadlined.cli import serve_command
from deadlined.http import Limits, Timeouts
from deadlined.runtime import LOOPS
from deadlined.service import ServeConfig
from deadlined.timers import SCHEMES
from tests.support.command import (
    APPS,
    PATIENCE,
    Process,
    Starter,
    assert_error,
    assert_one_line,
    environment,
    read_all,
    run,
)
from tests.support.invoked import invoke

# what it says of itself


@pytest.mark.parametrize("kind", [Timeouts, Limits])
def test_the_help_names_every_timeout_and_limit(kind: type[Timeouts] | type[Limits]) -> None:
    result = invoke("serve", "--help")
    assert result.exit_code == 0
    for field in fields(kind):
        assert re.search(rf"^  --{field.name.replace('_', '-')} ", result.output, re.MULTILINE), field.name


def test_the_help_of_the_command_shows_its_subcommands() -> None:
    completed = run("--help")
    assert completed.returncode == 0
    assert re.search(r"^  serve ", completed.stdout, re.MULTILINE)


def test_the_version_is_one_line() -> None:
    completed = run("--version")
    assert completed.returncode == 0
    assert re.fullmatch(rf"deadlined {re.escape(__version__)} \(.*trio.*h11.*\)\n", completed.stdout)


def test_every_option_can_be_given_in_the_environment() -> None:
    options = [option for option in serve_command.params if isinstance(option, click.Option)]
    assert len(options) > len(fields(Timeouts)) + len(fields(Limits))
    for option in options:
        assert option.envvar == f"DEADLINED_{option.name}".upper()


# what is wrong is said in one line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--idle", "soon"], ["--idle", "'soon' is not a duration", "500ms", "off"]),
        (["--idle", "-1s"], ["--idle", "'-1s' is not a duration"]),
        (["--body-min-rate", "fast"], ["--body-min-rate", "'fast' is not a rate", "16k"]),
        (["--body-min-rate", "off"], ["--body-min-rate", "cannot be off", "--body-grace off"]),
        (["--body-min-rate", "0"], ["body_min_rate must be greater than 0"]),
        (["--max-headers", "0"], ["'--max-headers': must be above 0; off switches it off"]),
        (["--port", "65536"], ["--port", "65535"]),
        (["--log-level", "loud"], ["--log-level", "warning"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["--http", "llhttp"], ["--http", "httptools"]),
        (["--queue", "stack"], ["--queue", "heap4"]),
        (["--uds-mode", "rw"], ["--uds-mode", "'rw' is not a mode", "660"]),
        (["--uds-mode", "888"], ["--uds-mode", "'888' is not a mode"]),
        (["--workers", "0"], ["--workers", "0"]),
        (["--workers", "-1"], ["--workers", "-1"]),
        (["--workers", "many"], ["--workers", "many"]),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) and value[0].startswith("-") else "",
)
def test_a_wrong_option_ends_it_with_2(arguments: list[str], words: list[str]) -> None:
    """In this process, because nothing of the service has begun."""
    result = invoke("serve", *arguments)
    assert_one_line(subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr), 2, *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--idle", "soon"], ["--idle", "'soon' is not a duration", "500ms", "off"]),
        (["no_such_module:app"], ["'no_such_module:app'", "there is no module 'no_such_module'", "package.module:app"]),
        (["json:no_such_app"], ["module 'json' has no attribute 'no_such_app'"]),
        (["--keyfile", "key.pem"], ["--keyfile needs --certfile"]),
        (["--certfile", "/no/such/cert.pem"], ["/no/such/cert.pem", "No such file"]),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) and value[0].startswith("-") else "",
)
def test_a_wrong_argument_ends_it_with_2(arguments: list[str], words: list[str]) -> None:
    assert_one_line(run("serve", *arguments), 2, *words)


def test_an_application_in_the_place_of_a_command_is_told_which_command_serves_it() -> None:
    result = invoke("shop.web:app", "--port", "80")
    done = subprocess.CompletedProcess([], result.exit_code, result.stdout, result.stderr)
    assert_one_line(done, 2, "'shop.web:app' is no command", "deadlined serve shop.web:app")


def test_help_is_an_option() -> None:
    result = invoke("help")
    assert result.exit_code == 2
    assert "deadlined --help" in result.stderr


def test_a_certificate_that_is_none_ends_it_with_2(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text("not a certificate")
    assert_one_line(run("serve", "--certfile", str(file)), 2, str(file))


def test_a_wrong_variable_ends_it_with_2() -> None:
    assert_one_line(run("serve", DEADLINED_IDLE="soon"), 2, "'soon' is not a duration")


def test_a_parser_that_is_not_installed_ends_it_with_2() -> None:
    program = "import sys; sys.modules['httptools'] = None; from deadlined.cli import main; main()"
    words = [sys.executable, "-c", program, "serve", "--http", "httptools"]
    completed = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PATIENCE, env=environment())
    assert_one_line(completed, 2, "httptools is not installed", "deadlined[fast]", "--http h11")


def test_an_application_whose_import_fails_ends_it_with_1(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("1 / 0\n")
    completed = run("serve", "bad:app", cwd=tmp_path)
    assert_error(completed, 1, "importing 'bad' failed", "ZeroDivisionError", "bad.py, line 1")
    # from the application's own file on
    header, first, *_ = completed.stderr.splitlines()
    assert header == "Traceback (most recent call last):"
    assert first == f'  File "{tmp_path}/bad.py", line 1, in <module>'
    assert "importlib" not in completed.stderr


def test_a_failed_start_is_in_the_log_too(tmp_path: Path) -> None:
    completed = run("serve", "no_such_module:app", cwd=tmp_path)
    (line,) = [json.loads(line) for line in completed.stdout.splitlines()]
    assert (line["event"], line["level"], line["exit_code"]) == ("startup failed", "error", 2)
    assert completed.stderr == f"Error: {line['why']}\n"


def test_so_is_a_failure_of_the_process_that_would_start_the_workers() -> None:
    completed = run("serve", "--workers", "2", "--host", "192.0.2.1")
    (line,) = [json.loads(line) for line in completed.stdout.splitlines()]
    assert (line["event"], line["exit_code"]) == ("startup failed", 3)
    assert completed.stderr == f"Error: {line['why']}\n"


def test_a_port_in_use_ends_it_with_3() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        completed = run("serve", "--port", str(port))
    assert_one_line(completed, 3, f"127.0.0.1:{port}", f"another process has it (process {os.getpid()}: ")


def test_a_path_of_something_else_ends_it_with_3(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    completed = run("serve", "--uds", str(file))
    assert_one_line(completed, 3, str(file), "not a socket", "remove it, or choose another --uds")
    assert "another process" not in completed.stderr


def test_a_path_of_another_process_ends_it_with_3(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "socket"))
        other.listen()
        completed = run("serve", "--uds", str(tmp_path / "socket"))
    assert_one_line(completed, 3, f"another process has it (process {os.getpid()}: ", "), choose another --uds")


def test_a_path_in_no_directory_ends_it_with_3(tmp_path: Path) -> None:
    assert_one_line(run("serve", "--uds", str(tmp_path / "none" / "socket")), 3, "its directory must exist")


@pytest.mark.parametrize(
    ("arguments", "mode"), [((), 0o666), (("--uds-mode", "660"), 0o660), (("--uds-mode", "0o600"), 0o600)]
)
def test_who_may_connect_to_the_unix_socket_is_an_option(
    start: Starter, tmp_path: Path, arguments: tuple[str, ...], mode: int
) -> None:
    path = tmp_path / "socket"
    before = os.umask(0o077)
    try:
        start("--uds", str(path), *arguments)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_host_that_is_not_ours_ends_it_with_3() -> None:
    assert_one_line(run("serve", "--host", "192.0.2.1"), 3, "192.0.2.1:8000")


def test_a_failed_startup_ends_it_with_1(tmp_path: Path) -> None:
    (tmp_path / "apps.py").write_text(APPS)
    completed = run("serve", "apps:broken", "--port", "0", cwd=tmp_path)
    assert_error(completed, 1, "the application failed to start: no database")
    assert "listening" not in completed.stdout
    assert "without a lifespan" not in completed.stdout
    assert [json.loads(line)["event"] for line in completed.stdout.splitlines()] == ["startup failed"]


# what it serves


def test_it_says_where_it_listens_and_serves_its_own_page_there(start: Starter) -> None:
    process = start()
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9][0-9]*", process.url)
    head, _, page = process.get().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "text/html" in head
    assert page.startswith("<!doctype html>")
    _, _, snapshot = process.get("/connections").partition("\r\n\r\n")
    assert json.loads(snapshot)["connections"][0]["phase"] == "handler"


def test_curl_understands_it(start: Starter) -> None:
    curl = shutil.which("curl")
    if curl is None:
        assert os.environ.get("DEADLINED_REQUIRE_TOOLS") != "1", "curl is required, and not there"
        pytest.skip("no curl here")
    process = start()
    completed = subprocess.run(
        [curl, "-sS", "-i", "--noproxy", "*", process.url, process.url + "/connections"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert completed.stdout.startswith("HTTP/1.1 200 OK\n")
    assert completed.stdout.count("HTTP/1.1 200 OK\n") == 2
    assert '"requests": 1' in completed.stdout, "both were asked for on one connection"


def test_an_application_is_found_in_the_current_directory_by_a_dotted_name(start: Starter) -> None:
    assert start("apps:shop.app").get().endswith("\r\n\r\nshop")


def test_it_serves_on_a_unix_socket_and_removes_it(start: Starter, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    process = start("--uds", str(path))
    assert process.url == f"unix:{path}"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert read_all(client).startswith("HTTP/1.1 200 OK\r\n")
    process.signal()
    assert process.end()[0] == 0
    assert not path.exists()
    assert process.events("request")[0]["peer"] == "unix"


@pytest.mark.parametrize("apart", [True, False], ids=["key apart", "key in the certificate's file"])
def test_it_speaks_tls(start: Starter, tmp_path: Path, apart: bool) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("server.example")
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    both = ("--certfile", "both.pem")
    process = start(*(("--certfile", "cert.pem", "--keyfile", "key.pem") if apart else both))
    assert process.url.startswith("https://")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with process.connect() as raw, context.wrap_socket(raw, server_hostname="server.example") as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert read_all(client).startswith("HTTP/1.1 200 OK\r\n")


def keep_alive(process: Process) -> str | None:
    with process.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        found = re.search(r"keep-alive: timeout=(\d+)", client.recv(65536).decode())
    return found and found[1]


@pytest.mark.parametrize(
    ("arguments", "variables", "idle"),
    [
        ([], {}, 75.0),
        ([], {"DEADLINED_IDLE": "2m"}, 120.0),
        (["--idle", "5"], {"DEADLINED_IDLE": "2m"}, 5.0),
        (["--idle", "off"], {"DEADLINED_IDLE": "2m"}, math.inf),
    ],
    ids=["default", "variable", "flag", "off"],
)
def test_a_variable_beats_the_default_and_a_flag_beats_the_variable(
    arguments: list[str], variables: dict[str, str], idle: float, chosen: list[ServeConfig]
) -> None:
    assert invoke("serve", *arguments, **variables).exit_code == 0
    assert [config.timeouts.idle for config in chosen] == [idle]


def test_the_server_goes_by_what_was_chosen(start: Starter) -> None:
    assert keep_alive(start("--idle", "5", DEADLINED_IDLE="2m")) == "5"
    assert keep_alive(start(DEADLINED_IDLE="off")) is None


def test_a_deadline_cuts_and_its_line_says_so(start: Starter) -> None:
    process = start("--read-header", "200ms")
    begun = time.monotonic()
    with process.connect() as client:
        client.sendall(b"GET / HT")
        assert read_all(client).startswith("HTTP/1.1 408 ")
    assert time.monotonic() - begun >= 0.2
    line = process.wait_for("connection")
    assert (line["reason"], line["phase"], line["requests"]) == ("header_timeout", "header", 0)
    assert line["elapsed"] >= 0.2
    assert line["lateness"] >= 0


def test_the_time_that_a_client_waits_counts_where_it_is_trusted(start: Starter) -> None:
    with start("apps:endless", "--trust-deadline-headers").connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ngrpc-timeout: 100m\r\n\r\n")
        assert read_all(client).startswith("HTTP/1.1 504 ")


def test_an_application_may_give_the_path_of_a_file_where_that_is_offered(start: Starter) -> None:
    assert "async def itself" in start("apps:itself", "--pathsend").get()
    assert start("apps:itself").get().startswith("HTTP/1.1 500 ")


def test_every_line_on_stdout_is_json_also_of_an_application_that_fails(start: Starter) -> None:
    process = start("apps:failing")
    assert process.get().startswith("HTTP/1.1 500 ")
    process.signal()
    code, err = process.end()
    assert (code, err) == (0, "")
    (failure,) = [line for line in process.lines if "LookupError" in line.get("exception", "")]
    assert (failure["level"], failure["logger"]) == ("error", "deadlined.http")
    (request,) = process.events("request")
    assert (request["method"], request["path"], request["status"]) == ("GET", "/", 500)
    assert request["reason"] == "server_error"
    assert process.lines[-1]["event"] == "stopped"
    assert process.lines[-1]["reasons"] == {"server_error": 1}


def test_without_the_access_log_only_the_service_speaks(start: Starter) -> None:
    process = start("--no-access-log")
    process.get()
    process.signal()
    assert process.end()[0] == 0
    assert [line["event"] for line in process.lines] == ["listening", "draining", "stopped"]


@pytest.mark.parametrize("option", ["--http=h11", "--http=httptools", "--queue=hierarchical"])
def test_it_serves_with_every_parser_and_with_another_queue(start: Starter, option: str) -> None:
    process = start("--read-header", "50ms", option)
    process.get()
    with socket.create_connection(("127.0.0.1", process.port)) as slow:
        slow.sendall(b"GET / HTTP/1.1")
        assert b"408" in slow.recv(1000)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_queue_can_be_chosen(name: str, chosen: list[ServeConfig]) -> None:
    """What the service does with the choice is the same for all; `net/test_queues` has deadlines on each."""
    assert invoke("serve", "--queue", name).exit_code == 0
    assert [config.queue for config in chosen] == [name]


# how it ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_with_nothing_open_ends_it_with_0(start: Starter, number: signal.Signals) -> None:
    process = start("--drain", "1h")
    process.signal(number)
    assert process.end() == (0, "")
    (draining,) = process.events("draining")
    assert (draining["signal"], draining["open"], draining["background"]) == (number.name, 0, 0)
    assert draining["seconds"] == 3600.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_signal_that_comes_when_all_is_done_changes_nothing(
    start: Starter, tmp_path: Path, loop: str, number: signal.Signals
) -> None:
    (tmp_path / "slow_end.py").write_text(
        "import atexit, time\nfrom apps import slow as app\natexit.register(time.sleep, 0.3)\n"
    )
    process = start("slow_end:app", "--loop", loop)
    process.signal(number)
    process.wait_for("stopped")
    process.signal(number)
    assert process.end() == (0, "")


def test_a_signal_closes_idle_connections_and_ends_it_with_0(start: Starter) -> None:
    process = start("--drain", "1h")
    with process.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert process.wait_for("request")
        client.recv(65536)
        process.signal()
        read_all(client)
        assert process.end() == (0, "")
    assert process.lines[-1]["reasons"] == {"done": 1}


def test_a_signal_lets_a_busy_request_finish(start: Starter) -> None:
    process = start("apps:slow", "--drain", "1h", "--no-access-log")  # whose lines would fill the pipe
    with process.begin() as client:
        process.wait_until_busy()
        process.signal()
        process.wait_for("draining")
        with pytest.raises(ConnectionRefusedError):
            while True:
                # the listener closes a moment after the line, and resets what it has not accepted
                with contextlib.suppress(ConnectionResetError):
                    process.connect().close()
        assert read_all(client).endswith("\r\n\r\nfinished")
    assert process.end() == (0, "")
    assert process.lines[-1]["reasons"]["done"] == 1


def test_a_request_that_never_ends_is_cut_by_the_drain(start: Starter) -> None:
    process = start("apps:endless", "--drain", "200ms")
    with process.begin() as client:
        process.wait_until_busy()
        begun = time.monotonic()
        process.signal()
        code, err = process.end()
        assert time.monotonic() - begun >= 0.2
        assert read_all(client) == ""
    assert (code, err) == (4, "")
    assert [line["reason"] for line in process.events("connection")] == ["drain_timeout"]
    assert process.lines[-1]["reasons"] == {"drain_timeout": 1}


def test_an_application_that_blocks_the_loop_does_not_keep_the_process(start: Starter) -> None:
    process = start("apps:blocking", "--drain", "100ms")
    with process.begin():
        process.wait_until_busy()
        begun = time.monotonic()
        process.signal()
        code, err = process.end()
        assert time.monotonic() - begun >= 0.1
    assert code == 1
    assert err.startswith("deadlined: the process did not end within the drain of 0.1 s; ending it; it is busy in ")
    assert re.search(r"/apps\.py, line \d+, in \w+\n$", err)


def test_a_second_signal_ends_it_at_once(start: Starter) -> None:
    process = start("apps:endless", "--drain", "1h")
    with process.begin() as client:
        process.wait_until_busy()
        process.signal()
        process.wait_for("draining")
        process.signal_later()
        assert process.end() == (4, "")
        assert read_all(client) == ""
    assert process.lines[-1]["reasons"] == {"drain_timeout": 1}


def test_what_runs_in_the_background_is_told_of_and_ended_by_a_second_signal(start: Starter) -> None:
    process = start("apps:untiring", "--drain", "1h")
    for _ in range(2):
        assert process.get().endswith("soon")
    process.signal()
    draining = process.wait_for("draining")
    assert (draining["open"], draining["background"]) == (0, 2)
    process.signal_later()
    assert process.end() == (4, "")
    assert process.lines[-1]["reasons"] == {"done": 2}


def test_a_lifespan_that_does_not_end_is_cut_by_the_drain(start: Starter) -> None:
    process = start("apps:lingering", "--drain", "1s")
    begun = time.monotonic()
    process.signal()
    code, err = process.end()
    assert time.monotonic() - begun >= 1.0
    assert (code, err) == (0, "ending\n")
    (line,) = [line for line in process.lines if line.get("level") == "error"]
    assert "did not finish its lifespan shutdown" in line["event"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_lifespan_that_does_not_end_is_cut_by_a_second_signal(start: Starter, number: signal.Signals) -> None:
    process = start("apps:patient", "--drain", "1h")
    process.signal()
    process.wait_until("ending")
    process.signal_later(number)
    assert process.end() == (0, "")
    assert [line["event"] for line in process.lines[-2:]] == [
        "the application did not finish its lifespan shutdown within 1 s; a longer drain (--drain) gives it more",
        "stopped",
    ]


# Python calls what is registered and then, when it has given the default handlers back, removes its modules.
LAST = """
import atexit, os, signal

def terminate(_=None, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
    kill(pid, number)

class Last:
    __del__ = terminate

atexit.register(terminate)
# what no cycle holds is removed last
os.last = Last()

async def app(scope, receive, send):
    raise NotImplementedError
"""


@pytest.mark.parametrize("drain", ["1h", "off"])
def test_a_signal_that_comes_when_the_process_ends_does_not_change_its_exit_code(
    start: Starter, tmp_path: Path, drain: str
) -> None:
    (tmp_path / "last.py").write_text(LAST)
    process = start("last:app", "--drain", drain)
    process.signal()
    assert process.end() == (0, "")


def test_the_lifespan_is_ended_also_after_a_second_signal(start: Starter) -> None:
    process = start("apps:orderly", "--drain", "1h")
    with process.begin():
        process.wait_until_busy()
        process.signal()
        process.wait_for("draining")
        process.signal_later()
        assert process.end() == (4, "ending\n")


@pytest.mark.parametrize(
    ("arguments", "module"), [(["serve"], "click"), (["config", "show"], "click"), (["health"], "json")]
)
def test_ctrl_c_while_the_command_is_loaded_ends_it_in_silence(
    tmp_path: Path, arguments: list[str], module: str
) -> None:
    (tmp_path / f"{module}.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from deadlined.__main__ import run; run()"
    command = [sys.executable, "-c", program, str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_before_the_service_handles_it_ends_the_command_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("deadlined.cli.outcome.serve", interrupted)
    done = invoke("serve")
    assert (done.exit_code, done.output) == (130, "")


def test_bytecode_that_was_cut_off_is_told_as_such(tmp_path: Path) -> None:
    """Python leaves half a file if the disk is full when it writes bytecode, and fails when it reads that."""
    (tmp_path / "whole.py").write_text("number = 5\n")
    code = py_compile.compile(str(tmp_path / "whole.py"), str(tmp_path / "half.pyc"))
    assert code is not None
    Path(code).write_bytes(Path(code).read_bytes()[:40])
    # in the place of a module of the server
    program = (
        "import sys, types; from deadlined.__main__ import run; import deadlined.service as service\n"
        "def serve(*_):\n    import half\n"
        "service.serve = serve\nrun()\n"
    )
    command = [sys.executable, "-c", program, "serve"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False)
    assert_error(done, 1, "unexpected end of data", "disk")
    assert "EOFError: marshal data too short" in done.stderr
