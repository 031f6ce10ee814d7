"""An open port says that the service is ready: connections are refused while the application starts."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deadlined.service.listening.free_port import free_port
from tests.support.command import launched, rest_of, wait_until_starting

# starts once a file is there
APP = """
import sys, pathlib, {loop}
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        print("starting", file=sys.stderr, flush=True)
        while not pathlib.Path("go").exists():
            await {loop}.sleep(0.01)
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
        await send({{"type": "lifespan.shutdown.complete"}})
    else:
        await send({{"type": "http.response.start", "status": 204}})
        await send({{"type": "http.response.body"}})
"""

HOW = {"one process": (), "workers": ("--workers", "2")}

# other systems let nobody else bind a port that is bound
PLACES = ["tcp", "unix"] if sys.platform == "linux" else ["unix"]


@contextmanager
def connected(address: str | tuple[str, int]) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as client:
        client.connect(address)
        yield client


def answer(client: socket.socket) -> bytes:
    """Send a request, and return the first line of the response."""
    client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    return client.makefile("rb").readline()


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
@pytest.mark.parametrize("how", HOW)
def test_connections_are_refused_until_the_application_has_started(tmp_path: Path, how: str, loop: str) -> None:
    (tmp_path / "starts.py").write_text(APP.format(loop=loop))
    path, port = str(tmp_path / "socket"), free_port("127.0.0.1", 0)
    places = ("--bind", f"127.0.0.1:{port}", "--bind", f"unix:{path}")
    with launched("serve", "starts:app", "--loop", loop, *places, *HOW[how], cwd=tmp_path) as process:
        wait_until_starting(process)
        for address in (("127.0.0.1", port), path):
            with pytest.raises(ConnectionRefusedError), connected(address):
                pass
        (tmp_path / "go").touch()
        assert process.stdout is not None
        # who reads that line may connect at once
        while json.loads(process.stdout.readline())["event"] != "listening":
            continue
        for address in (("127.0.0.1", port), path):
            with connected(address) as client:
                assert answer(client).startswith(b"HTTP/1.1 204 ")


@pytest.mark.integration
def test_connections_wait_for_an_application_that_is_reloaded(tmp_path: Path) -> None:
    (tmp_path / "starts.py").write_text(APP.format(loop="trio"))
    path = str(tmp_path / "socket")
    with launched("serve", "starts:app", "--uds", path, "--reload", cwd=tmp_path) as process:
        wait_until_starting(process)
        with connected(path) as client:
            (tmp_path / "go").touch()
            assert answer(client).startswith(b"HTTP/1.1 204 ")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", HOW)
def test_a_place_that_is_taken_while_the_application_starts_ends_the_service(
    tmp_path: Path, how: str, place: str
) -> None:
    (tmp_path / "starts.py").write_text(APP.format(loop="trio"))
    port = free_port("127.0.0.1", 0)
    path = tmp_path / "socket"
    given = ("--uds", str(path)) if place == "unix" else ("--port", str(port))
    with launched("serve", "starts:app", *given, *HOW[how], cwd=tmp_path) as process:
        wait_until_starting(process)
        if place == "unix":
            # as a service does that starts now: nobody listens there
            path.unlink()
            other = socket.socket(socket.AF_UNIX)
            other.bind(str(path))
            other.listen()
        else:
            other = socket.create_server(("127.0.0.1", port))
        with other:
            (tmp_path / "go").touch()
            out, err = rest_of(process)
    assert process.returncode == 3
    assert "Address already in use; another process has it" in err
    events = [json.loads(line)["event"] for line in out.splitlines()]
    assert "startup failed" in events
    assert "listening" not in events
    # the other one's
    assert path.exists() is (place == "unix")
