"""What a log of the command has, and what it leaves out, by its options. Real processes: the options must reach it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import APPS, PATIENCE, assert_one_line, launched, read_all, rest_of, run

SHOP = """
from apps import answer

async def app(scope, receive, send):
    if scope["type"] != "http" or scope["path"] == "/bad":
        raise LookupError("lost")
    await answer(send, b"shop")
"""


class Silent:
    """A server on a unix socket, which need not say that it listens."""

    def __init__(self, process: subprocess.Popen[str], path: str) -> None:
        self._process = process
        self._path = path
        with self._connect():
            pass

    def ask(self, target: str = "/", *fields: str) -> str:
        """Return the response to a request on a connection of its own."""
        return self.send("\r\n".join([f"GET {target} HTTP/1.1", "host: a", "connection: close", *fields, "", ""]))

    def send(self, text: str) -> str:
        """Send a text, and return all that comes back."""
        with self._connect() as client:
            client.sendall(text.encode("latin-1"))
            return read_all(client)

    def end(self) -> list[dict[str, Any]]:
        """Let it drain, and return all lines of its log but those of the connection that has waited for the start."""
        self._process.send_signal(signal.SIGTERM)
        out, err = rest_of(self._process)
        assert (self._process.returncode, err) == (0, "")
        lines = [json.loads(line) for line in out.splitlines()]
        return [line for line in lines if line["event"] != "connection" or line["received"]]

    def _connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE)
        until = time.monotonic() + PATIENCE
        while client.connect_ex(self._path):
            assert self._process.poll() is None, rest_of(self._process)
            assert time.monotonic() < until
            time.sleep(0.02)
        return client


@contextmanager
def silent(directory: Path, *arguments: str) -> Iterator[Silent]:
    (directory / "apps.py").write_text(APPS)
    with launched(*arguments, "--uds", "s", cwd=directory) as process:
        yield Silent(process, str(directory / "s"))


def told(lines: list[dict[str, Any]]) -> list[tuple[str, object]]:
    """Return what each line is about, without the lines of `logging`."""
    own = [line for line in lines if line["logger"] in ("deadlined", "deadlined.access")]
    return [(line["event"], line.get("status") or line.get("reason")) for line in own]


@pytest.mark.parametrize(
    ("level", "written"),
    [("warning", [("request", 500), ("connection", "header_timeout")]), ("error", [])],
)
def test_nothing_below_the_level_is_written(tmp_path: Path, level: str, written: list[tuple[str, object]]) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with silent(tmp_path, "serve", "shop:app", "--log-level", level, "--read-header", "100ms") as server:
        assert server.ask().endswith("shop")
        assert "500" in server.ask("/bad")
        assert "408" in server.send("GET / HTTP/1.1\r\n")
        lines = server.end()
    assert told(lines) == written
    # the application's own failure is an error
    assert [line["level"] for line in lines if line["logger"] == "deadlined.http"] == ["error"]


def test_worker_processes_and_their_supervisor_keep_to_the_level(tmp_path: Path) -> None:
    with silent(tmp_path, "serve", "apps:pid", "--workers", "2", "--log-level", "warning") as server:
        assert server.ask().startswith("HTTP/1.1 200 ")
        assert server.end() == []


def test_only_the_errors_of_the_access_log(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with silent(tmp_path, "serve", "shop:app", "--access-log-lines", "errors", "--read-header", "100ms") as server:
        assert server.ask().endswith("shop")
        assert "400" in server.send("no HTTP\r\n\r\n")
        assert "500" in server.ask("/bad")
        assert "408" in server.send("GET / HTTP/1.1\r\n")
        lines = server.end()
    # a connection lingers until the client has closed it, which the signal may overtake
    assert sorted(map(str, told(lines))) == [
        "('connection', 'header_timeout')",
        "('draining', None)",
        "('listening', None)",
        "('request', 500)",
        "('stopped', None)",
    ]


def test_an_upstream_that_is_not_there_is_an_error_of_the_access_log(tmp_path: Path) -> None:
    with silent(tmp_path, "proxy", "--upstream", "unix:none", "--access-log-lines", "errors") as server:
        assert "502" in server.ask("/?token=1")
        assert ("request", 502) in told(server.end())


def test_the_lines_of_a_route_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text('[[route]]\npath = "/healthz"\naccess_log = false\n')
    with silent(tmp_path, "serve", "apps:pid", "--config", "shop.toml") as server:
        assert "200" in server.ask("/healthz?x")
        assert "200" in server.ask("/healthz-not")
        lines = [line for line in server.end() if line["logger"] == "deadlined.access"]
    assert [(line["event"], line.get("path")) for line in lines] == [("request", "/healthz-not"), ("connection", None)]


def test_no_line_has_the_query(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with silent(tmp_path, "serve", "shop:app", "--no-log-query") as server:
        assert "500" in server.ask("/bad?token=hunter2")
        lines = server.end()
    assert "hunter2" not in json.dumps(lines)
    assert [line["path"] for line in lines if line["event"] == "request"] == ["/bad"]
    assert [line["event"] for line in lines if line["logger"] == "deadlined.http"] == ["GET /bad failed"]


def test_no_line_of_a_proxy_has_the_query(tmp_path: Path) -> None:
    with silent(tmp_path, "proxy", "--upstream", "unix:none", "--no-log-query") as server:
        assert "502" in server.ask("/?token=hunter2")
        lines = server.end()
    assert "hunter2" not in json.dumps(lines)
    # more than one try
    assert {line["event"].split(":")[0] for line in lines if line["logger"] == "deadlined.proxy"} == {"GET /"}


@pytest.mark.parametrize("command", [("serve", "apps:pid"), ("proxy", "--upstream", "unix:none")])
def test_header_fields_are_added_to_the_lines_of_requests(tmp_path: Path, command: tuple[str, ...]) -> None:
    with silent(tmp_path, *command, "--access-log-fields", "User-Agent,x-request-id") as server:
        server.ask("/", "X-Request-Id: 7", "x-request-id: caf\u00e9", "user-agent: " + "a" * 300, "cookie: secret")
        server.ask("/")
        lines = server.end()
    first, second = (line for line in lines if line["event"] == "request")
    assert list(first["fields"].items()) == [("user-agent", "a" * 256 + "..."), ("x-request-id", "7, caf\u00e9")]
    assert "fields" not in second
    assert "secret" not in json.dumps(lines)


@pytest.mark.parametrize("name", ["authorization", "Cookie", "proxy-authorization", "x-api-key", "x-auth-token"])
def test_a_field_that_is_a_secret_is_refused_by_its_name(name: str) -> None:
    completed = run("serve", "--access-log-fields", f"user-agent,{name}")
    assert_one_line(completed, 2, "--access-log-fields", f"{name} is never logged")
