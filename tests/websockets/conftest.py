"""Servers that the modules of this folder share: a process costs half a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.applications.running import Server

from .running import LOOPS, library, serving


@pytest.fixture(scope="session", params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    """The event loop of the server."""
    return str(request.param)


@pytest.fixture(scope="session")
def server(loop: str) -> Iterator[Server]:
    """A server of the plain site on each event loop, for clients that behave and for those that send nonsense."""
    with serving(loop, "plain:app") as server:
        yield server


@pytest.fixture(scope="session")
def reference() -> Iterator[Server]:
    """The echo server of the `websockets` library."""
    with library() as server:
        yield server
