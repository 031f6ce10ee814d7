"""The examples do what their docstrings promise: each is run as its reader would run it, and its times on a virtual
clock."""

from __future__ import annotations

import http.client
import importlib.util
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from deadlined import Conn
from tests.support.net import Attempt, certificates, tcp_pair

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"

# seconds; for what must happen, and never waited for in full
PATIENCE = 30.0


def load(name: str) -> Any:
    """An example as a module; untyped, for it is no part of any package."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def started(name: str, *arguments: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """An example as a program on a free port: the port that it tells, and the process."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), "--port", "0", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True)
    # a program that says nothing must not hold up the tests
    guard = threading.Timer(PATIENCE, process.kill)
    guard.start()
    try:
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found is not None, "the example does not say where it listens"
        yield int(found[1]), process
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), "PATH": str(Path(shutil.which("openssl") or "/usr/bin/openssl").parent)}


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_every_example_is_tested_here() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {"echo_idle", "line_total", "asgi_extend", "ticker", "tls_server", "timer_thread"}


# the echo server


def test_echo_idle_echoes_and_hangs_up_on_the_silent() -> None:
    with started("echo_idle", "--idle", "0.2") as (port, process), dial(port) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        assert client.recv(100) == b""
        assert "read deadline passed" in said(process)


async def test_echo_idle_moves_its_deadline_with_every_message(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with tcp_pair() as (client, server):
        echo = Attempt(nursery, lambda: load("echo_idle").echo(server, 5.0))
        for _ in range(3):
            await trio.sleep(4.0)
            await client.send_all(b"x")
            assert await client.receive_some() == b"x"
        await echo.done()
        assert (echo.error, echo.ended) == (None, 12.0 + 5.0)


# the line protocol


def test_line_total_answers_lines_and_cuts_an_unfinished_one() -> None:
    with started("line_total", "--line", "0.2") as (port, process), dial(port) as client:
        client.sendall(b"one\ntwo\nthr")
        received = b""
        while data := client.recv(100):
            received += data
        assert received == b"ONE\nTWO\n"
        assert "read deadline passed" in said(process)


async def trickle(conn: Conn) -> None:
    """A byte a second, for as long as they are taken."""
    while True:
        await trio.sleep(1.0)
        await conn.send_all(b"x")


async def test_line_total_is_not_extended_by_trickling(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with tcp_pair() as (client, server):
        talk = Attempt(nursery, lambda: load("line_total").talk(server, 5.5))
        await client.send_all(b"first\n")
        assert await client.receive_some() == b"FIRST\n"
        nursery.start_soon(trickle, client)
        await talk.done()
        assert (talk.error, talk.ended) == (None, 5.5)
        nursery.cancel_scope.cancel()


async def test_line_total_gives_every_line_its_own_time(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with tcp_pair() as (client, server):
        talk = Attempt(nursery, lambda: load("line_total").talk(server, 5.0))
        for _ in range(3):
            await trio.sleep(4.0)
            await client.send_all(b"line\n")
            assert await client.receive_some() == b"LINE\n"
        await talk.done()
        assert talk.ended == 12.0 + 5.0


# the heartbeat

# beat 4 has waited for the slow worker, 5 and 6 were dropped, 7 comes in time
HEARTBEAT = [
    "beat 1",
    "beat 2",
    "beat 3",
    "watchdog: no beat for 1.5 periods",
    "beat 4",
    "skipped 2",
    "beat 7",
    "beat 8",
]


async def test_ticker_skips_what_it_misses_and_the_watchdog_notices(autojump_clock: MockClock) -> None:
    said: list[str] = []
    await load("ticker").heartbeat(0.5, 8, said.append)
    assert said == HEARTBEAT
    assert trio.current_time() == 8 * 0.5


def test_ticker_runs_as_a_program() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "ticker.py"), "--period", "0.01", "--beats", "1"]
    result = subprocess.run(
        command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert result.stderr == ""
    assert "beat 1" in result.stdout.splitlines()


# the application


def test_asgi_extend_serves() -> None:
    with started("asgi_extend") as (port, _):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("GET", "/deadline")
            response = connection.getresponse()
            assert response.status == 200
            left = float(response.read().split()[0])
            assert 0.0 < left <= 1.0
        finally:
            connection.close()


@pytest.mark.parametrize(("path", "status", "seconds"), [("/quick", b"504", 1.0), ("/report", b"200", 2.0)])
async def test_asgi_extend_gets_the_time_that_it_asks_for(
    path: str, status: bytes, seconds: float, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    port = await nursery.start(load("asgi_extend").serve, 0)
    async with await trio.open_tcp_stream("127.0.0.1", port) as client:
        began = trio.current_time()
        await client.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = await client.receive_some()
        assert answer.split()[1] == status
        assert trio.current_time() - began == pytest.approx(seconds)
    nursery.cancel_scope.cancel()


# TLS

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command is not installed")


@needs_openssl
def test_tls_server_makes_its_own_certificate_and_echoes() -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with started("tls_server") as (port, _), context.wrap_socket(dial(port)) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


@needs_openssl
def test_tls_server_uses_the_certificate_that_it_is_given(tmp_path: Path) -> None:
    certificate, key = load("tls_server").self_signed(tmp_path)
    context = ssl.create_default_context(cafile=str(certificate))
    with (
        started("tls_server", "--certfile", str(certificate), "--keyfile", str(key)) as (port, _),
        context.wrap_socket(dial(port), server_hostname="localhost") as client,
    ):
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


async def test_tls_server_cuts_whoever_does_not_shake_hands(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with tcp_pair() as (_, server):
        example = load("tls_server")
        echo = Attempt(nursery, lambda: example.echo(server, certificates().server))
        await echo.done()
        assert (echo.error, echo.ended) == (None, example.HANDSHAKE)


# timers without an event loop


def run_commands(commands: str, *arguments: str) -> list[str]:
    """What the example says of some commands."""
    program = [sys.executable, "-W", "error", str(EXAMPLES / "timer_thread.py"), *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    result = subprocess.run(
        program, input=commands, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert result.stderr == ""
    return result.stdout.splitlines()


def test_timer_thread_kills_the_command_that_takes_too_long_and_goes_on() -> None:
    lines = run_commands("sleep 60\ntrue\n", "--limit", "1")
    assert lines == ["sleep 60: killed after 1 s", "true: exit status 0"]


def test_timer_thread_tells_of_a_command_that_takes_a_while_and_lets_it_end() -> None:
    told, *rest = run_commands("sleep 0.5\nfalse\n", "--limit", "60", "--report", "0.3")
    assert re.fullmatch(r"sleep 0\.5: for \d+\.\d s now", told)
    assert rest == ["sleep 0.5: exit status 0", "false: exit status 1"]
