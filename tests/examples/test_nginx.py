"""A real nginx with the example's configuration, in front of a real server on a unix socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from deadlined.http import Timeouts
from tests.applications.daemons import found, free_port, tied
from tests.support.admin import admin_of
from tests.support.command import PATIENCE, Process, Starter
from tests.support.deployment import EXAMPLES, SHOP, duration

CONFIG = EXAMPLES / "nginx" / "nginx.conf"
TEXT = CONFIG.read_text()

# not 127.0.0.1, which a server could have from anywhere
CLIENT = "127.0.0.2"
FORGED = "203.0.113.66"


def directive(name: str) -> str:
    """Return the value of the only such directive."""
    (value,) = re.findall(rf"^\s*{name} (.*);$", TEXT, re.MULTILINE)
    return str(value)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can enter: nginx serves as another user than root."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def moved(folder: Path, port: int) -> Path:
    """Write the example with its files in `folder`, its port, and one process, so that connections can be counted."""
    changes = {
        "/run/": f"{folder}/",
        "/var/log/nginx/": f"{folder}/",
        "listen 80;": f"listen 127.0.0.1:{port};",
        "worker_processes auto;": "worker_processes 1;",
    }
    text = TEXT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    config = folder / "nginx.conf"
    config.write_text(text.replace("http {\n", f"http {{\n{paths}"))
    return config


def nginx() -> str:
    return found("nginx", Path("/usr/sbin"))


@contextmanager
def running(folder: Path, port: int) -> Iterator[None]:
    """Run nginx until the block ends."""
    command = [*tied(), nginx(), "-c", str(moved(folder, port)), "-g", "daemon off;"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE
        while not listens(port):
            assert process.poll() is None, "it does not start: see the test of its configuration"
            assert time.monotonic() < end
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def listens(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def behind(start: Starter, folder: Path) -> Process:
    """Start the server with the arguments that the example tells."""
    (told,) = re.findall(r"^#\s+deadlined serve (.*)$", TEXT, re.MULTILINE)
    arguments = [f"{folder}/shop.sock" if word == "/run/shop.sock" else word for word in shlex.split(told)]
    assert f"{folder}/shop.sock" in arguments
    return start(*arguments, "--app-dir", str(SHOP), "--admin", "127.0.0.1:0")


def asked(connection: http.client.HTTPConnection, **fields: str) -> Any:
    connection.request("GET", "/client", headers={name.replace("_", "-"): value for name, value in fields.items()})
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    return json.loads(text)


def from_client(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE, source_address=(CLIENT, 0))


def test_the_example_is_valid(folder: Path) -> None:
    command = [nginx(), "-t", "-c", str(moved(folder, free_port()))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    # for another user than root `user` means nothing, and is warned of
    assert "[warn]" not in done.stderr or os.getuid() != 0


def test_the_application_sees_the_client_whatever_the_client_says(start: Starter, folder: Path) -> None:
    behind(start, folder)
    port = free_port()
    wanted = {"client": CLIENT, "scheme": "http", "host": f"127.0.0.1:{port}"}
    with running(folder, port), closing(from_client(port)) as client:
        assert asked(client) == wanted
        assert asked(client, x_forwarded_for=FORGED, x_forwarded_proto="https", x_forwarded_host="evil") == wanted
        assert asked(client, forwarded=f"for={FORGED};proto=https;host=evil") == wanted
        assert asked(client, x_forwarded_port="1", forwarded=f'for="{FORGED}', host="shop.example") == {
            **wanted,
            "host": "shop.example",
        }


def test_a_client_of_http_1_0_that_names_no_host_is_served(start: Starter, folder: Path) -> None:
    behind(start, folder)
    port = free_port()
    with running(folder, port), socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        client.sendall(b"GET /client HTTP/1.0\r\n\r\n")
        with client.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    assert head.split()[1] == b"200", (head, body)
    assert json.loads(body)["host"] == "localhost"


def test_what_waits_on_asyncio_is_served(start: Starter, folder: Path) -> None:
    behind(start, folder)
    port = free_port()
    with running(folder, port), closing(from_client(port)) as client:
        client.request("GET", "/slow?seconds=0.01")
        assert client.getresponse().status == 200


def test_all_requests_share_a_connection(start: Starter, folder: Path) -> None:
    admin = admin_of(behind(start, folder))
    port = free_port()
    with running(folder, port):
        for _ in range(20):
            with closing(from_client(port)) as client:
                asked(client)
        metrics = admin.metrics()
    assert metrics['deadlined_requests_total{code="200",method="GET"}'] == 20
    assert metrics["deadlined_connections_accepted_total"] == 1


def test_a_websocket_goes_through(start: Starter, folder: Path) -> None:
    process = behind(start, folder)
    port = free_port()
    with running(folder, port), connect(f"ws://127.0.0.1:{port}/echo", open_timeout=PATIENCE) as websocket:
        for word in ("one", "two" * 10_000):
            websocket.send(word)
            assert websocket.recv(PATIENCE) == word
        process.signal()
        # a drain tells the client to come again
        with pytest.raises(Exception, match="1012"):
            websocket.recv(PATIENCE)
    assert process.end()[0] == 0


def test_nginx_closes_an_idle_connection_before_the_server_does() -> None:
    assert duration(directive("keepalive_timeout")) < Timeouts().idle


def test_nginx_waits_for_longer_than_a_websocket_is_silent() -> None:
    assert duration(directive("proxy_read_timeout")) > Timeouts().ws_ping + Timeouts().ws_pong
