"""A site that asks others: the clients of HTTP, databases and caches that asyncio's applications use.

Pools and sessions belong to the lifespan, as their documentations want it. httpx knows trio, too.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import asyncio
import logging
import math
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import aiosqlite
import asyncpg
import httpx
import psycopg
import redis.asyncio
import sniffio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from deadlined import current_time

log = logging.getLogger("site")

# given by the tests that have such servers
CACHE = os.environ.get("SITE_REDIS")
DATABASE = os.environ.get("SITE_POSTGRES")

# seconds until the deadline of a request whose answer would never come
SOON = 0.05


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
    state: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        state["browser"] = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        if sniffio.current_async_library() == "asyncio":
            await open_for_asyncio(stack, state)
        log.info("site up")
        yield state
    log.info("site down")


async def open_for_asyncio(stack: AsyncExitStack, state: dict[str, Any]) -> None:
    state["session"] = await stack.enter_async_context(aiohttp.ClientSession())
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    state["sqlite"] = await stack.enter_async_context(aiosqlite.connect(Path(folder) / "shop.db"))
    await state["sqlite"].execute("create table items (number integer primary key, name text)")
    if CACHE is not None:
        state["redis"] = await stack.enter_async_context(redis.asyncio.from_url(CACHE, decode_responses=True))
    if DATABASE is not None:
        state["pool"] = await stack.enter_async_context(asyncpg.create_pool(DATABASE, min_size=1, max_size=3))
        await state["pool"].execute("create table if not exists items (number serial, name text unique)")


async def target(request: Request) -> Response:
    """What the clients of HTTP ask for: this server."""
    return JSONResponse({"method": request.method, "length": len(await request.body())})


async def with_httpx(request: Request) -> Response:
    browser: httpx.AsyncClient = request.state.browser
    got = await browser.get(f"{request.base_url}target")
    posted = await browser.post(f"{request.base_url}target", content=bytes(200_000))
    async with browser.stream("GET", f"{request.base_url}lines") as response:
        lines = [line async for line in response.aiter_lines()]
    return JSONResponse([got.json(), posted.json(), len(lines)])


async def with_aiohttp(request: Request) -> Response:
    session: aiohttp.ClientSession = request.state.session
    async with session.get(f"{request.base_url}target") as response:
        got = await response.json()
    async with session.post(f"{request.base_url}target", data=bytes(200_000)) as response:
        posted = await response.json()
    async with session.get(f"{request.base_url}lines") as response:
        lines = [line async for line in response.content]
    return JSONResponse([got, posted, len(lines)])


async def lines(_: Request) -> Response:
    return PlainTextResponse("".join(f"line {number}\n" for number in range(1000)))


async def with_sqlite(request: Request) -> Response:
    database: aiosqlite.Connection = request.state.sqlite
    name = request.query_params["name"]
    cursor = await database.execute("insert into items (name) values (?)", (name,))
    await database.commit()
    async with database.execute("select name from items where number = ?", (cursor.lastrowid,)) as rows:
        return JSONResponse([row[0] async for row in rows])


async def with_redis(request: Request) -> Response:
    cache: redis.asyncio.Redis = request.state.redis
    name = request.query_params["name"]
    async with cache.pipeline() as pipe:
        pipe.set(name, "1", ex=60)
        pipe.incr(name)
        results = await pipe.execute()
    return JSONResponse([results, await cache.get(name), await cache.ttl(name) > 0])


async def subscribe(request: Request) -> Response:
    """Answer with the first message of a channel, after all that subscribe have told so."""
    cache: redis.asyncio.Redis = request.state.redis
    async with cache.pubsub() as channel:
        await channel.subscribe("news")
        await cache.rpush("subscribed", "1")
        async for message in channel.listen():
            if message["type"] == "message":
                return PlainTextResponse(message["data"])
    return PlainTextResponse("", 500)


async def publish(request: Request) -> Response:
    """Wait for so many subscribers, and publish."""
    cache: redis.asyncio.Redis = request.state.redis
    for _ in range(int(request.query_params["subscribers"])):
        await cache.blpop(["subscribed"], timeout=30)
    return JSONResponse(await cache.publish("news", "here it is"))


async def with_asyncpg(request: Request) -> Response:
    pool: asyncpg.Pool = request.state.pool
    name = request.query_params["name"]
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("insert into items (name) values ($1)", name)
        rows = [row["name"] async for row in connection.cursor("select name from items where name = $1", name)]
    return JSONResponse(rows)


async def asyncpg_fails(request: Request) -> Response:
    """A transaction is rolled back by the error that ends the request."""
    pool: asyncpg.Pool = request.state.pool
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("insert into items (name) values ('rolled back')")
        raise LookupError("meant to fail")


async def asyncpg_count(request: Request) -> Response:
    return JSONResponse(await request.state.pool.fetchval("select count(*) from items where name = 'rolled back'"))


async def with_psycopg(request: Request) -> Response:
    name = request.query_params["name"]
    async with await psycopg.AsyncConnection.connect(DATABASE or "") as connection, connection.cursor() as cursor:
        await cursor.execute("insert into items (name) values (%s)", (name,))
        await cursor.execute("select name from items where name = %s", (name,))
        found = [row[0] async for row in cursor]
        async with cursor.copy("copy (select generate_series(1, 1000)) to stdout") as copy:
            numbers = [int(row[0]) async for row in copy.rows()]
    return JSONResponse([found, sum(numbers)])


async def never_asyncpg(request: Request) -> None:
    await request.state.pool.execute("select pg_sleep(600)")


async def never_psycopg(request: Request) -> None:
    """The deadline runs from the query's own notice: PostgreSQL ignores a cancel that comes before the query."""
    end_after(request, math.inf)
    async with await psycopg.AsyncConnection.connect(DATABASE or "") as connection:
        connection.add_notice_handler(lambda _: end_after(request, SOON))
        await connection.execute("do $$ begin raise notice 'begun'; end $$; select pg_sleep(600)")


async def never_redis(request: Request) -> None:
    await request.state.redis.blpop(["nothing"], timeout=600)


async def never_httpx(request: Request) -> None:
    await request.state.browser.get(f"{request.base_url}never")


async def never_aiohttp(request: Request) -> None:
    await request.state.session.get(f"{request.base_url}never")


async def never_sqlite(request: Request) -> None:
    async with request.state.sqlite.execute("select 1"):
        await asyncio.Event().wait()


NEVER = {
    "asyncpg": never_asyncpg,
    "psycopg": never_psycopg,
    "redis": never_redis,
    "httpx": never_httpx,
    "aiohttp": never_aiohttp,
    "sqlite": never_sqlite,
}


def end_after(request: Request, seconds: float) -> None:
    request.scope["extensions"]["deadlined"].set_handler_deadline(current_time() + seconds)


async def late(request: Request) -> Response:
    """Ask what does not answer, under a deadline of the request's own."""
    end_after(request, SOON)
    await NEVER[request.path_params["client"]](request)
    return PlainTextResponse("it did answer")


async def never(request: Request) -> Response:
    """Wait until the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return PlainTextResponse("")


app = Starlette(
    routes=[
        Route("/target", target, methods=["GET", "POST"]),
        Route("/lines", lines),
        Route("/httpx", with_httpx),
        Route("/aiohttp", with_aiohttp),
        Route("/sqlite", with_sqlite),
        Route("/redis", with_redis),
        Route("/redis/subscribe", subscribe),
        Route("/redis/publish", publish),
        Route("/asyncpg", with_asyncpg),
        Route("/asyncpg/fails", asyncpg_fails),
        Route("/asyncpg/count", asyncpg_count),
        Route("/psycopg", with_psycopg),
        Route("/late/{client}", late),
        Route("/never", never),
    ],
    lifespan=lifespan,
)
