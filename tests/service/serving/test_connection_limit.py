"""More idle clients than a process may have open files: all of them are answered, and what is beside them works."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.admin import admin_of
from tests.support.command import COMMAND, PATIENCE, Process, launched, starter

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"

# opens files, as an application that has a database does
APP = """
import os

async def app(scope, receive, send):
    if scope["type"] != "http":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
    for file in files:
        os.close(file)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""


@contextmanager
def limited(files: int, *arguments: str, cwd: Path) -> Iterator[Process]:
    """Run the command with so many files at most."""
    command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *COMMAND]
    with launched(*arguments, cwd=cwd, command=command) as process:
        yield Process(process)


def asking(stack: ExitStack, port: int, number: int) -> list[socket.socket]:
    """Return clients that have sent a request each, and stay."""
    clients = []
    for _ in range(number):
        client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
        client.sendall(GET)
        clients.append(client)
    return clients


def statuses(clients: list[socket.socket]) -> set[bytes]:
    """Wait for all answers."""
    return {client.recv(65536).split(b" ")[1] for client in clients}


@pytest.mark.parametrize(
    "loop", ["trio", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("asyncio", "uvloop"))]
)
def test_a_guard_answers_more_idle_clients_than_it_may_have_files(tmp_path: Path, loop: str) -> None:
    arguments = ("proxy", "--no-access-log", "--port", "0", "--loop", loop, "--upstream")
    with ExitStack() as stack:
        (tmp_path / "app.py").write_text(APP)
        start = stack.enter_context(starter(tmp_path))
        upstream = start("app:app")
        guard = stack.enter_context(limited(100, *arguments, f"127.0.0.1:{upstream.port}", cwd=tmp_path))
        clients = asking(stack, guard.port, 150)
        assert statuses(clients) == {b"200"}
        guard.signal()
        assert guard.end()[0] == 0
        assert guard.events("stopped")[0]["reasons"]["idle_timeout"] >= 100


@pytest.mark.parametrize(
    "loop", ["trio", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("asyncio", "uvloop"))]
)
def test_a_server_has_files_for_its_application_and_its_admin_page(tmp_path: Path, loop: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    arguments = ("serve", "app:app", "--no-access-log", "--port", "0", "--admin", "127.0.0.1:0", "--loop", loop)
    with ExitStack() as stack:
        server = stack.enter_context(limited(100, *arguments, cwd=tmp_path))
        clients = asking(stack, server.port, 150)
        admin = admin_of(server)
        assert admin.get("/livez").status == 200
        assert statuses(clients) == {b"200"}
        assert admin.get("/livez").status == 200
        server.signal()
        assert server.end()[0] == 0


def test_a_limit_that_is_given_is_used_and_a_reload_changes_it(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    file = tmp_path / "limit.toml"
    file.write_text('app = "app:app"\nport = 0\nmax_connections = 2\n')
    with ExitStack() as stack:
        server = stack.enter_context(limited(100, "serve", "--config", str(file), "--no-access-log", cwd=tmp_path))
        silent = [stack.enter_context(server.connect()) for _ in range(2)]
        (waiting,) = asking(stack, server.port, 1)
        line = server.next_line()
        while "as there may be (2)" not in str(line):
            line = server.next_line()
        file.write_text('app = "app:app"\nport = 0\nmax_connections = 3\n')
        server.signal(signal.SIGHUP)
        assert statuses([waiting]) == {b"200"}
        assert len(silent) == 2
        server.signal()
        assert server.end()[0] == 0
