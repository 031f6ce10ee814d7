"""Applications behind Starlette's middlewares, each of which runs what is behind it in a task of its own: they are
cancelled once, from inside, and have time to clean up. On trio a clean-up that waits must be shielded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.to_thread
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.runtime.on_asyncio.middleware import cancel
from tests.support.conformance import Loop, on_asyncio
from tests.support.conformance_http import Site, site_of
from tests.support.http import GET, Client

End = Callable[[Site, Client], object]

# False for anyio before 4.7: the view is interrupted there, as by anyio itself
GENTLE = hasattr(import_module("anyio._backends._asyncio"), "is_anyio_cancellation")


class Shop:
    """An application of Starlette behind so many middlewares, whose view does `work`, and then cleans up for `seconds`,
    as each middleware does for `around` seconds. It is shielded for `shielded` seconds before it calls what is behind
    it. `told`: how the clean-ups went, and how the application has ended."""

    def __init__(
        self,
        loop: Loop,
        middlewares: int,
        seconds: float,
        work: Callable[[], Awaitable[object]],
        around: float = 0,
        shielded: float = 0,
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._around = around
        self._shielded = shielded
        self._work = work
        self._app: Any = Starlette(
            routes=[Route("/", self._view)],
            middleware=[Middleware(BaseHTTPMiddleware, dispatch=self._dispatch) for _ in range(middlewares)],
        )
        self.told: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except BaseException as error:
            self.told.append(type(error).__name__)
            raise

    async def _dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        try:
            with anyio.CancelScope(shield=True):
                await self._loop.sleep(self._shielded)
            return await call_next(request)
        finally:
            if self._around:
                await self._clean_up("around", self._around)

    async def _view(self, _: Request) -> Response:
        try:
            await self._work()
        finally:
            await self._clean_up("", self._seconds)
        return Response()

    async def _clean_up(self, where: str, seconds: float) -> None:
        try:
            # in scopes of its own: anyio goes on with a cancellation at the end of each
            for _ in range(2):
                with anyio.CancelScope():
                    await self._loop.sleep(seconds / 2)
            self.told.append(f"{where} cleaned up".strip())
        except asyncio.CancelledError:
            self.told.append(f"{where} interrupted".strip())
            raise


def leave(_: Site, client: Client) -> None:
    client.reset()


def wait(_: Site, __: Client) -> None:
    """Let the handler's deadline pass."""


def drain(site: Site, _: Client) -> None:
    site.server.shutdown()


async def ended(loop: Loop, shop: Shop, end: End) -> None:
    """Ask, and let the request end."""
    async with site_of(loop, AsgiHandler(shop), handler=10, drain=2) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await loop.sleep(1)
        end(site, client)
        await site.until(lambda: shop.told)
        await site.until(lambda: not site.server.open_connections and not site.server.background)


each_end = pytest.mark.parametrize("end", [leave, wait, drain])


@on_asyncio
@each_end
@pytest.mark.parametrize("middlewares", [0, 1, 2, 3])
async def test_a_view_has_time_to_clean_up(
    loop: Loop, middlewares: int, end: End, caplog: pytest.LogCaptureFixture
) -> None:
    """And no middleware learns of its end as of an application that has given no response."""
    shop = Shop(loop, middlewares, 0.5, loop.forever)
    await ended(loop, shop, end)
    assert shop.told == ["cleaned up" if GENTLE or not middlewares else "interrupted", "CancelledError"]
    assert [record for record in caplog.records if record.exc_info] == []


@on_asyncio
@each_end
@pytest.mark.parametrize("middlewares", [1, 3])
async def test_a_view_that_goes_on_is_interrupted(loop: Loop, middlewares: int, end: End) -> None:
    # the second is a real one
    shop = Shop(loop, middlewares, 10_000, loop.forever)
    await ended(loop, shop, end)
    # anyio before 4.10 may swallow the cancellation of a task group that waits
    assert shop.told in (["interrupted", "CancelledError"], ["interrupted"])


if GENTLE:

    @on_asyncio
    @each_end
    @pytest.mark.parametrize("middlewares", [1, 3])
    async def test_so_has_each_middleware(loop: Loop, middlewares: int, end: End) -> None:
        # the last of them long after the server's end has begun
        shop = Shop(loop, middlewares, 0.75, loop.forever, 0.75)
        await ended(loop, shop, end)
        assert shop.told == ["cleaned up", *["around cleaned up"] * middlewares, "CancelledError"]

    @on_asyncio
    @each_end
    async def test_a_middleware_that_goes_on_is_interrupted(loop: Loop, end: End) -> None:
        shop = Shop(loop, 1, 0.5, loop.forever, 10_000)
        await ended(loop, shop, end)
        assert shop.told == ["cleaned up", "around interrupted", "CancelledError"]

    @on_asyncio
    @each_end
    @pytest.mark.parametrize("middlewares", [1, 3])
    async def test_so_has_a_view_that_a_middleware_calls_as_it_leaves_a_shield(
        loop: Loop, middlewares: int, end: End
    ) -> None:
        # longer than any of the ends takes
        shop = Shop(loop, middlewares, 0.5, loop.forever, shielded=12)
        await ended(loop, shop, end)
        assert shop.told == ["cleaned up", "CancelledError"]

    @on_asyncio
    async def test_a_view_in_a_thread_cleans_up_after_that(loop: Loop) -> None:
        """The second for it begins when the thread has ended."""
        go_on = asyncio.Event()

        async def work() -> None:
            with anyio.CancelScope(shield=True):
                await go_on.wait()
            await loop.forever()

        shop = Shop(loop, 1, 0.5, work)
        async with site_of(loop, AsgiHandler(shop)) as (site, _):
            client = await site.connect()
            await client.send(GET)
            await loop.sleep(1)
            client.reset()
            # longer than a second, also where the time of the test runs faster
            await asyncio.sleep(1.5)
            assert shop.told == []
            go_on.set()
            await site.until(lambda: len(shop.told) == 2)
        assert shop.told == ["cleaned up", "CancelledError"]


@on_asyncio
async def test_other_private_names_cancel_the_outermost(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """As asyncio and anyio do."""
    shop = Shop(loop, 1, 0.5, loop.forever)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
    unused: Any = loop.forever
    backend = sys.modules["anyio._backends._asyncio"]
    renamed = [
        SimpleNamespace(),
        SimpleNamespace(_task_states={}, is_anyio_cancellation=None),
        # before 4.7
        SimpleNamespace(_task_states=getattr(backend, "_task_states")),  # noqa: B009
    ]
    for module, told in (
        (backend, "cleaned up" if GENTLE else "interrupted"),
        *((one, "interrupted") for one in renamed),
    ):
        task = asyncio.ensure_future(shop(scope, unused, unused))
        await loop.settle()
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "anyio._backends._asyncio", module)
            cancel(task)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert shop.told == [told, "CancelledError"]
        shop.told.clear()
