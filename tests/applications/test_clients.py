"""The clients that applications use inside their handlers, beside real servers: httpx on every loop; aiosqlite,
aiohttp, redis-py, asyncpg and psycopg on asyncio and uvloop."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.applications.daemons import postgresql, redis_server
from tests.applications.running import ON_ASYNCIO, Server, deadlined

pytestmark = pytest.mark.thorough

ASKED = [{"method": "GET", "length": 0}, {"method": "POST", "length": 200_000}, 1000]


@pytest.fixture(scope="module")
def cache() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(scope="module")
def on_trio() -> Iterator[Server]:
    """The site without what only asyncio has."""
    with deadlined("clients_site:app", "trio") as server:
        yield server


@pytest.fixture(scope="module", params=ON_ASYNCIO)
def server(request: pytest.FixtureRequest, cache: str, database: str) -> Iterator[Server]:
    with deadlined("clients_site:app", request.param, SITE_REDIS=cache, SITE_POSTGRES=database) as server:
        yield server


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has stored."""
    return str(request.node.name)


def test_httpx_asks_on_trio(on_trio: Server) -> None:
    with httpx.Client(base_url=on_trio.url, trust_env=False, timeout=30) as client:
        assert [client.get("/httpx").json() for _ in range(3)] == [ASKED] * 3
        assert client.get("/late/httpx").status_code == 504
        assert client.get("/httpx").json() == ASKED


def test_httpx_asks(client: httpx.Client) -> None:
    assert [client.get("/httpx").json() for _ in range(3)] == [ASKED] * 3


def test_aiohttp_asks(client: httpx.Client) -> None:
    assert [client.get("/aiohttp").json() for _ in range(3)] == [ASKED] * 3


def test_aiosqlite_stores(client: httpx.Client, name: str) -> None:
    assert client.get("/sqlite", params={"name": name}).json() == [name]


def test_redis_stores(client: httpx.Client, name: str) -> None:
    assert client.get("/redis", params={"name": name}).json() == [[True, 2], "2", True]


def test_a_message_of_redis_reaches_every_request_that_waits(client: httpx.Client) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(client.get, "/redis/subscribe") for _ in range(4)]
        assert client.get("/redis/publish?subscribers=4").json() == 4
        assert [each.result().text for each in waiting] == ["here it is"] * 4


def test_asyncpg_stores_in_a_transaction(client: httpx.Client, name: str) -> None:
    assert client.get("/asyncpg", params={"name": name}).json() == [name]
    # the name is unique
    assert client.get("/asyncpg/fails").status_code == 500
    assert client.get("/asyncpg/count").json() == 0


def test_psycopg_stores_and_copies(client: httpx.Client, name: str) -> None:
    assert client.get("/psycopg", params={"name": name}).json() == [[name], 500_500]


def test_many_requests_share_the_pools(client: httpx.Client, name: str) -> None:
    paths = [
        f"/{kind}?name={name}-{kind}-{number}"
        for number in range(8)
        for kind in ("asyncpg", "psycopg", "redis", "sqlite")
    ]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(client.get, paths))
    assert {answer.status_code for answer in answers} == {200}


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg", "redis", "httpx", "aiohttp", "sqlite"])
def test_a_deadline_ends_a_wait_for_another_server_and_the_client_can_be_used_again(
    client: httpx.Client, kind: str, name: str
) -> None:
    for _ in range(4):
        assert client.get(f"/late/{kind}").status_code == 504
    again = client.get(f"/{kind}", params={"name": name})
    assert again.status_code == 200
