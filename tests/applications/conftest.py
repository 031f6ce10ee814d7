"""What the tests of all applications have: a client of the module's server."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.applications.running import Server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """A client of the server that the module's fixture `server` runs."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        yield client
