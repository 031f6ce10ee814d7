"""SIGHUP and POST /reload: the configuration is read again, and open connections have the new one."""

from __future__ import annotations

import os
import pty
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.support.admin import admin_of
from tests.support.command import COMMAND, Process, Starter, launched, read_all, wait_until_starting
from tests.support.load import Load

LOCAL = ("--admin", "127.0.0.1:0", "--no-access-log")
KEEP = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "shop.toml"
    found.write_text("idle = '1h'\n")
    return found


def serving(start: Starter, *arguments: str, workers: int = 1) -> Process:
    process = start("apps:pid", "--config", "shop.toml", "--workers", str(workers), *(arguments or LOCAL))
    for _ in range(workers - 1):
        process.wait_for("listening")
    return process


def idle(process: Process) -> socket.socket:
    """A connection that has asked once."""
    client = process.connect()
    client.sendall(KEEP)
    assert client.recv(65536).startswith(b"HTTP/1.1 200")
    return client


def answer(client: socket.socket, request: bytes = KEEP) -> bytes:
    client.sendall(request)
    return client.recv(65536)


def test_a_hangup_changes_deadlines_and_limits_also_of_open_connections(start: Starter, file: Path) -> None:
    process = serving(start)
    with idle(process) as client, idle(process) as waiting:
        file.write_text("idle = '0s'\nmax_body = 5\n")
        process.signal(signal.SIGHUP)
        told = process.wait_for("reloaded")
        assert (told["by"], told["changed"]["idle"], told["needs_restart"]) == ("SIGHUP", ["3600s", "0s"], [])
        # its wait had an hour left
        assert waiting.recv(1) == b""
        assert client.recv(1) == b""
    with process.connect() as client:
        assert b" 413 " in answer(client, b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\n")
    shown = admin_of(process).get("/config").json
    assert (shown["timeouts"]["idle"], shown["limits"]["max_body"]) == (0.0, 5.0)
    process.signal()
    assert process.end() == (0, "")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_post_says_what_has_changed_and_what_needs_a_restart(start: Starter, file: Path, workers: int) -> None:
    process = serving(start, workers=workers)
    admin = admin_of(process)
    file.write_text("idle = '5s'\nport = 1\nworkers = 7\nloop = 'asyncio'\nqueue = 'wheel'\nhttp = 'h11'\n")
    for _ in range(2):
        found = admin.get("/reload", "POST")
        assert found.status == 200
        # those of the command line hold
        assert sorted(found.json["needs_restart"]) == ["http", "loop", "queue"]
        file.write_text(file.read_text() + "\n")
    assert process.wait_for("reloaded")["changed"] == {"idle": ["3600s", "5s"]}
    assert process.wait_for("reloaded")["changed"] == {}
    assert found.json["changed"] == {}
    assert found.json["workers"] == (0 if workers == 1 else 2)
    assert admin.get("/config").json["timeouts"]["idle"] == 5.0
    assert admin.get("/config").json["loop"] == "trio"
    process.signal()
    assert process.end() == (0, "")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("idle = 'soon'", "shop.toml:1: idle: 'soon'"),
        ("idel = 5", "unknown key; did you mean idle?"),
        ("= 5", "not TOML"),
        (None, "No such file"),
        ("certfile = 'none.pem'", "none.pem: cannot read it"),
    ],
)
def test_a_bad_file_changes_nothing_and_is_told_once(
    start: Starter, file: Path, workers: int, text: str | None, told: str
) -> None:
    process = serving(start, workers=workers)
    admin = admin_of(process)
    before = admin.get("/config").json
    with idle(process) as client:
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        process.signal(signal.SIGHUP)
        line = process.wait_for("reload refused")
        assert (line["level"], told in line["why"]) == ("error", True)
        found = admin.get("/reload", "POST")
        assert (found.status, told in found.detail) == (422, True)
        # the same process answers on the same connection
        assert b"\r\nkeep-alive: timeout=3600\r\n" in answer(client).lower()
    assert admin.get("/config").json == before
    process.signal()
    assert process.end() == (0, "")
    assert len(process.events("reload refused")) == 2
    assert process.events("reloaded") == process.events("workers replaced") == []


def test_worker_processes_that_drain_have_the_new_deadlines_and_new_ones_too(start: Starter, file: Path) -> None:
    process = start("apps:endless", "--config", "shop.toml", "--workers", "2", *LOCAL)
    process.wait_for("listening")
    with process.begin() as client:
        process.wait_until_busy()
        file.write_text("idle = '1h'\nhandler = '1h'\ndrain = '0s'\n")
        process.signal(signal.SIGHUP)
        # a drain of half a minute has become one of none
        assert read_all(client) == ""
        process.wait_for("workers replaced")
    with process.begin():
        process.wait_until_busy()
        process.signal()
        assert process.end() == (4, "")


def test_flags_and_the_environment_of_the_start_come_before_the_file(start: Starter, file: Path) -> None:
    process = start("apps:pid", "--config", "shop.toml", *LOCAL, "--idle", "9s", DEADLINED_DRAIN="7s")
    file.write_text("idle = '1s'\ndrain = '1s'\nhandler = '2s'\nqueue = 'heap4'\n")
    process.signal(signal.SIGHUP)
    told = process.wait_for("reloaded")
    assert (list(told["changed"]), told["needs_restart"]) == (["handler"], [])


def test_without_a_file_nothing_changes(start: Starter) -> None:
    process = start("apps:pid", *LOCAL)
    process.signal(signal.SIGHUP)
    told = process.wait_for("reloaded")
    assert (told["changed"], told["needs_restart"]) == ({}, [])
    assert process.get().startswith("HTTP/1.1 200")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_certificate_is_read_again(start: Starter, tmp_path: Path, workers: int) -> None:
    file = tmp_path / "cert.pem"

    def certify() -> ssl.SSLContext:
        authority = trustme.CA()
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        return context

    def asked(context: ssl.SSLContext) -> bytes:
        with process.connect() as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
            return answer(client)

    old = certify()
    process = start("apps:pid", "--certfile", "cert.pem", "--workers", str(workers), *LOCAL)
    assert asked(old).startswith(b"HTTP/1.1 200")
    new = certify()
    process.signal(signal.SIGHUP)
    process.wait_for("reloaded" if workers == 1 else "workers replaced")
    assert asked(new).startswith(b"HTTP/1.1 200")
    with pytest.raises(ssl.SSLCertVerificationError):
        asked(old)
    file.write_text("no certificate")
    process.signal(signal.SIGHUP)
    assert "no certificate is in this file" in process.wait_for("reload refused")["why"]
    assert asked(new).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_while_draining_is_refused_and_the_drain_goes_on(start: Starter, file: Path, workers: int) -> None:
    process = start("apps:endless", "--config", "shop.toml", "--workers", str(workers), "--drain", "1h", *LOCAL)
    admin = admin_of(process)
    with process.begin() as client:
        process.wait_until_busy()
        process.signal()
        process.wait_for("draining")
        for _ in range(3):
            process.signal(signal.SIGHUP)
            told = process.wait_for("not reloaded")
            assert (told["by"], told["why"]) == ("SIGHUP", "the service is draining")
        found = admin.get("/reload", "POST")
        assert (found.status, "draining" in found.detail) == (409, True)
        process.signal_later()
        assert read_all(client) == ""
    assert process.end()[0] == 4


HESITANT = """
import pathlib, sys, time
print("starting", file=sys.stderr, flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.01)
from apps import pid as app
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_hangup_while_starting_is_done_when_it_serves(tmp_path: Path, file: Path, workers: str) -> None:
    (tmp_path / "slow.py").write_text(HESITANT)
    (tmp_path / "apps.py").write_text("async def pid(scope, receive, send):\n    raise NotImplementedError\n")
    arguments = ("serve", "slow:app", "--port", "0", "--config", "shop.toml", "--workers", workers)
    with launched(*arguments, cwd=tmp_path) as running:
        wait_until_starting(running)
        for _ in range(5):
            running.send_signal(signal.SIGHUP)
        file.write_text("idle = '3s'\n")
        (tmp_path / "go").touch()
        process = Process(running)
        told = process.events("reloaded") or [process.wait_for("reloaded")]
        assert told[0]["changed"] == {"idle": ["3600s", "3s"]}
        process.signal()
        assert process.end()[0] == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_reloads_without_pause_are_all_answered_and_no_request_fails(start: Starter, file: Path, workers: int) -> None:
    process = serving(start, workers=workers)
    admin = admin_of(process)
    with Load(("127.0.0.1", process.port), 3, 3).running() as load:
        for number in range(1, 31):
            file.write_text(f"idle = '{number}s'\n")
            found = admin.get("/reload", "POST")
            assert (found.status, found.json["changed"]["idle"][1]) == (200, f"{number}s")
            load.wait_for_more(5)
        load.wait_for_more(50)
    assert load.failures == {}
    assert admin.get("/config").json["timeouts"]["idle"] == 30.0
    process.signal()
    assert process.end() == (0, "")


@pytest.mark.parametrize("nohup", [False, True])
def test_a_server_ends_with_its_terminal_but_not_under_nohup(tmp_path: Path, file: Path, nohup: bool) -> None:
    (tmp_path / "apps.py").write_text("async def app(scope, receive, send):\n    raise NotImplementedError\n")
    ours, theirs = pty.openpty()
    code = (
        "import os, fcntl, termios, signal, sys; fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0);"
        f"signal.signal(signal.SIGHUP, signal.{'SIG_IGN' if nohup else 'SIG_DFL'});"
        "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
    )
    command = [COMMAND[0], "-c", code, str(theirs), *COMMAND[1:], "serve", "apps:app", "--config", "shop.toml"]
    with launched("--port", "0", cwd=tmp_path, command=command, pass_fds=[theirs]) as running:
        os.close(theirs)
        process = Process(running)
        process.signal(signal.SIGHUP)
        process.wait_for("reloaded")
        os.close(ours)
        if nohup:
            # the terminal is gone, and it serves
            process.signal(signal.SIGHUP)
            process.wait_for("reloaded")
            process.signal()
        else:
            process.wait_for("draining")
        assert process.end()[0] == 0


def test_the_supervisor_reads_again_though_the_application_changes_the_directory(start: Starter, file: Path) -> None:
    directory: Any = file.parent
    (directory / "moves.py").write_text("import os\nos.chdir('/')\nfrom apps import pid as app\n")
    process = start("moves:app", "--config", "shop.toml", *LOCAL)
    file.write_text("idle = '2s'\n")
    process.signal(signal.SIGHUP)
    assert process.wait_for("reloaded")["changed"] == {"idle": ["3600s", "2s"]}
