"""The page that a server without an application shows: its own connections."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from deadlined.http import Timeouts
from deadlined.service.content.page import LivePage
from tests.support.serving import GET, Served, serving

CONNECTIONS = b"GET /connections HTTP/1.1\r\nhost: a\r\n\r\n"


@asynccontextmanager
async def live(**timeouts: float) -> AsyncIterator[Served]:
    page = LivePage()
    async with serving(page, timeouts=Timeouts(**timeouts)) as served:
        page.server = served.server
        yield served


async def snapshot(served: Served) -> dict[str, Any]:
    answer = await served.ask(CONNECTIONS)
    assert answer.headers[b"content-type"] == b"application/json"
    # strict: what a browser would not read is an error
    found: dict[str, Any] = json.loads(answer.body, parse_constant=pytest.fail)
    return found


async def test_the_root_is_the_page() -> None:
    async with live() as served:
        answer = await served.ask(GET)
    assert answer.status == 200
    assert answer.headers[b"content-type"] == b"text/html; charset=utf-8"
    assert answer.headers[b"cache-control"] == b"no-store"
    assert answer.body.startswith(b"<!doctype html>")
    assert b'fetch("connections")' in answer.body


async def test_the_page_needs_nothing_from_elsewhere() -> None:
    async with live() as served:
        answer = await served.ask(GET)
    assert b"://" not in answer.body


async def test_anything_else_is_404_and_says_what_there_is() -> None:
    async with live() as served:
        answer = await served.ask(b"GET /nothing HTTP/1.1\r\nhost: a\r\n\r\n")
    assert (answer.status, answer.body) == (404, b"not found: try / or /connections\n")


async def test_a_query_does_not_matter() -> None:
    async with live() as served:
        assert (await served.ask(b"GET /connections?now HTTP/1.1\r\nhost: a\r\n\r\n")).status == 200


async def test_each_connection_is_shown_with_its_phase_and_what_is_left(autojump_clock: MockClock) -> None:
    async with live(read_header=10.0, idle=75.0) as served, served.client() as idle, served.client() as silent:
        await idle.ask(GET)
        await silent.send(b"GET / HT")
        await trio.sleep(4)
        found = await snapshot(served)
    shown = [
        {name: connection[name] for name in ("id", "phase", "age", "left", "requests")}
        for connection in found["connections"]
    ]
    # an idle connection lives a second longer than it was told
    assert shown == [
        {"id": 1, "phase": "idle", "age": 4.0, "left": 72.0, "requests": 1},
        {"id": 2, "phase": "header", "age": 4.0, "left": 6.0, "requests": 0},
        {"id": 3, "phase": "handler", "age": 0.0, "left": None, "requests": 1},
    ]
    assert [connection["peer"].rpartition(":")[0] for connection in found["connections"]] == ["127.0.0.1"] * 3


async def test_the_handlers_deadline_is_shown(autojump_clock: MockClock) -> None:
    async with live(handler=30.0) as served:
        (connection,) = (await snapshot(served))["connections"]
    assert connection["left"] == 30.0


async def test_what_has_ended_is_counted_by_reason(autojump_clock: MockClock) -> None:
    async with live(read_header=10.0) as served:
        async with served.client() as silent:
            assert await silent.at_end()
        async with served.client() as gone:
            await gone.ask(GET)
        await served.ended()
        found = await snapshot(served)
    assert found["reasons"] == {"header_timeout": 1, "client_closed": 1}
    assert (found["accepted"], found["requests"]) == (3, 1)
    assert found["worst_lateness"] == 0.0
    assert found["draining"] is False


async def test_a_page_without_a_server_is_a_mistake(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(LivePage()) as served:
        assert (await served.ask(CONNECTIONS)).status == 500
    assert "LivePage.server is not set" in caplog.text
