"""Servers as processes: `deadlined serve` on each event loop, uvicorn, and the server of the `websockets` library."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from tests.applications.running import Server, process
from tests.support.command import COMMAND
from tests.support.websocket_peer import Peer, Response, upgrade

LOOPS = ("trio", "asyncio", "uvloop")
# an application gives the same answers on all of these
SERVERS = (*LOOPS, "uvicorn")
ON_ASYNCIO = ("asyncio", "uvloop", "uvicorn")
SITES = "tests.websockets.sites"

# what a line of the log says of a failure that a test provokes, by the module of the site
MEANT = "meant[ -]to[ -]fail"
EXPECTED = {
    "channels_site": MEANT,
    "fastapi_site": MEANT,
    "litestar_site": MEANT,
    "plain": f"{MEANT}|/deaf: cancelled 10 s after its end",
    "quart_site": f"{MEANT}|ClientDisconnectedError",  # Quart's own, since 0.23, of a client that leaves
    "starlette_site": f"{MEANT}|Expected bytes websocket messages",
}

# what asgiref says of a `send` that returns an awaitable and is no coroutine function; Channels uses it in threads
HARMLESS = re.compile("async_to_sync was passed a non-async-marked callable|return AsyncToSync")


@contextmanager
def deadlined(site: str, loop: str, *options: str, failing: bool = False) -> Iterator[Server]:
    """Run `deadlined serve` with a site, and check at the end that it drains and that nothing was logged but what was
    meant to fail; `failing`: or what is said of the application."""
    command = (*COMMAND, "serve", f"{SITES}.{site}", "--port=0", f"--loop={loop}", *options)
    with process('"listening"', *command) as server:
        server.wait_until_ready(server.out)
        yield server
        code = server.end()
        bad = [] if failing else failures(server, site)
        said = [line for line in server.err.lines if not HARMLESS.search(line)]
        assert (code, bad, said) == (0, [], []), (code, bad, said)


def failures(server: Server, site: str = "") -> list[object]:
    """Return the warnings and errors that were not meant. What the access log says of a failure is said elsewhere."""
    expected = EXPECTED.get(site.partition(":")[0])
    said = [line for line in server.log() if line.get("logger") != "deadlined.access"]
    bad = [line for line in said if line.get("level") in ("warning", "error")]
    return [line for line in bad if expected is None or not re.search(expected, json.dumps(line))]


def reasons(server: Server) -> list[str]:
    """Return why each connection has ended, so far, in the order of the log."""
    return [line["reason"] for line in server.log() if line["event"] == "connection"]


def reason_of(server: Server, peer: Peer) -> str:
    """Return why the connection of this client has ended. Waits for the line of the log; the test's own time limit
    ends that."""
    while True:
        for text in reversed(server.out.lines):
            line = json.loads(text)
            if datetime.fromisoformat(line["timestamp"]).timestamp() < peer.began:
                break
            if line["event"] == "connection" and line["peer"] == peer.name:
                return str(line["reason"])
        time.sleep(0.01)


@contextmanager
def uvicorn(site: str, *options: str) -> Iterator[Server]:
    """Run uvicorn with a site."""
    command = (
        sys.executable,
        "-m",
        "uvicorn",
        f"{SITES}.{site}",
        "--port=0",
        "--no-access-log",
        "--ws=websockets-sansio",
    )
    with process("Uvicorn running on", *command, *options) as server:
        server.wait_until_ready(server.err)
        yield server
        server.end()


@contextmanager
def library() -> Iterator[Server]:
    """Run the echo server of the `websockets` library."""
    with process("http://", sys.executable, "-m", f"{SITES}.library_echo") as server:
        server.wait_until_ready(server.out)
        yield server
        server.end()


@contextmanager
def serving(kind: str, site: str, *options: str, failing: bool = False) -> Iterator[Server]:
    """Run a site on what `kind` names: an event loop of `deadlined serve`, or uvicorn."""
    with uvicorn(site, *options) if kind == "uvicorn" else deadlined(site, kind, *options, failing=failing) as server:
        yield server


def is_uvicorn(server: Server) -> bool:
    """Tell uvicorn, where it is known to differ."""
    return "uvicorn" in server.process.args  # type: ignore[operator]


def get(server: Server, path: str) -> Any:
    """Return the JSON of a response."""
    with Peer.dial(server.port) as client:
        return asked(client, path)


def asked(client: Peer, path: str) -> Any:
    """Return the JSON of a response on a connection that lives on."""
    response = client.ask(f"GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n".encode())
    assert response.status == 200, response
    return json.loads(response.body)


def told(server: Server, path: str, what: object) -> list[Any]:
    """Ask until the list that this page shows contains `what`, and return it. The test's own time limit ends it."""
    return shown(server, path, lambda seen: what in seen)


def shown(server: Server, path: str, enough: Callable[[list[Any]], object] = bool) -> list[Any]:
    """Ask until the list that this page shows is `enough`, and return it; not empty, if nothing is given."""
    with Peer.dial(server.port) as client:
        while not enough(seen := asked(client, path)):
            time.sleep(0.002)
        return list(seen)


def denial(server: Server, path: str, *fields: str) -> Response:
    """Return the response to an upgrade that is refused."""
    with Peer.dial(server.port) as client:
        response = client.ask(upgrade(path, *fields))
    assert response.status != 101, response
    return response
