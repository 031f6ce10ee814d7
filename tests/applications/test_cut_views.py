"""Views of Quart and Django, on asyncio and uvloop, that a deadline of the server's cuts: their frameworks wait for two
tasks, one of which receives, and cancel the view when that is told of the disconnect."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import httpx
import pytest
from websockets.sync.client import connect

from tests.applications.running import ON_ASYNCIO, Server, deadlined, unchecked
from tests.support.command import PATIENCE

SITES = [("quart_site:for_asyncio", "--factory"), ("django_site:app", "--lifespan=off")]

CUT = 4


def wait_for(server: Server, event: str) -> None:
    late = time.monotonic() + PATIENCE
    while event not in [line["event"] for line in server.log()]:
        assert time.monotonic() < late, f"it does not log {event!r}: {server.log()}"
        time.sleep(0.02)


@pytest.mark.parametrize("loop", ON_ASYNCIO)
@pytest.mark.parametrize(("site", "option"), SITES)
def test_a_view_is_cancelled_by_the_handler_deadline(site: str, option: str, loop: str) -> None:
    with deadlined(site, loop, option, "--handler=200ms", lifespan=site.startswith("quart")) as server:
        assert httpx.get(f"{server.url}/slow", trust_env=False, timeout=PATIENCE).status_code == 504
        wait_for(server, "slow was cancelled")
        if site.startswith("django"):
            with suppress(httpx.TransportError):
                httpx.get(f"{server.url}/endless", trust_env=False, timeout=PATIENCE)
            wait_for(server, "endless was cancelled")


@pytest.mark.parametrize("loop", ON_ASYNCIO)
@pytest.mark.parametrize(("site", "option"), SITES)
def test_a_view_is_cancelled_at_the_end_of_a_drain(site: str, option: str, loop: str) -> None:
    with unchecked(site, loop, option, "--drain=200ms") as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
            wait_for(server, "slow has begun")
            assert server.end() == CUT
        assert_is_clean(server, "slow was cancelled")


@pytest.mark.parametrize("loop", ON_ASYNCIO)
def test_a_websocket_of_quart_is_cancelled_at_the_end_of_a_drain(loop: str) -> None:
    with unchecked("quart_site:for_asyncio", loop, "--factory", "--drain=200ms") as server:
        with connect(f"ws://127.0.0.1:{server.port}/waiting"):
            assert server.end() == CUT
        assert_is_clean(server, "waiting was cancelled")


def assert_is_clean(server: Server, event: str) -> None:
    """Check that the log of a server that has ended has this line, and none of a failure."""
    lines = server.log()
    assert [line["event"] for line in lines].count(event) == 1, lines
    assert [line for line in lines if line.get("level") in ("warning", "error")] == []
    assert server.err.lines == []
