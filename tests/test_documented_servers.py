"""The handlers of connections that the pages show end with their connection, and not with the whole server."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import deadlined

DOCS = Path(__file__).parents[1] / "docs"

# the blocks of a page that define a handler `echo`, without what runs it
HANDLER = re.compile(
    r"^```python\n((?:(?!^```).)*?^async def echo.*?)^(?:async def main|```$)", re.MULTILINE | re.DOTALL
)
PROGRAMS = [
    (page, text) for page in ("library.md", "testing.md") for text in HANDLER.findall((DOCS / page).read_text())
]


def test_every_handler_is_found() -> None:
    assert [page for page, _ in PROGRAMS] == ["library.md", "library.md", "testing.md"]


@pytest.mark.parametrize(("page", "program"), PROGRAMS)
async def test_no_client_ends_the_server(page: str, program: str, autojump_clock: MockClock) -> None:
    names: dict[str, Any] = {}
    exec(program, names)
    async with trio.open_nursery() as nursery:
        serve = partial(deadlined.serve_tcp, names["echo"], 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        connect = partial(deadlined.open_tcp_stream, *listener.socket.getsockname())
        async with await connect() as silent, await connect() as resetting:
            await resetting.send_all(b"x")
            assert await resetting.receive_some() == b"x"
            resetting.abort()
            assert await silent.receive_some() == b""
            assert trio.current_time() == 60
        async with await connect() as client:
            await client.send_all(b"hello")
            assert await client.receive_some() == b"hello"
        nursery.cancel_scope.cancel()
