"""Many clients at once, and a third of their requests misbehave: each of the others gets its own answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Timeouts
from deadlined.runtime import LOOPS
from tests.support.on_loops import LOCALHOST, Site, answer, in_trio, serve_on, sleep, sleep_forever

CONNECTIONS = 64
REQUESTS = 25

pytestmark = pytest.mark.filterwarnings("ignore:.*was garbage collected before it had been exhausted:ResourceWarning")


async def hang(send: Send) -> None:
    await sleep_forever()


async def swallow_cancellations(send: Send) -> None:
    for _ in range(3):
        with contextlib.suppress(BaseException):
            await sleep(0.02)


async def leave(send: Send) -> None:
    sys.exit(3)


async def raise_in_the_middle(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise BaseExceptionGroup("several", [SystemExit(1), ValueError()])


async def answer_twice(send: Send) -> None:
    await answer(send, b"once")
    await answer(send, b"twice")


async def return_nothing(send: Send) -> None:
    pass


async def leave_a_scope_open(send: Send) -> None:
    anyio.CancelScope().__enter__().cancel()
    await answer(send)


async def abandon_a_generator(send: Send) -> None:
    async def numbers() -> Any:
        with anyio.fail_after(3600):
            yield 1

    await anext(numbers())
    await answer(send)


async def go_on_after_the_answer(send: Send) -> None:
    await answer(send)
    await sleep(0.01)
    raise ValueError


async def cancel_itself(send: Send) -> None:
    if not in_trio():
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
    await sleep(0)


async def stop_the_loop(send: Send) -> None:
    if not in_trio():
        asyncio.get_running_loop().stop()
    await answer(send)


MESSES: list[Callable[[Send], Awaitable[None]]] = [
    hang,
    swallow_cancellations,
    leave,
    raise_in_the_middle,
    answer_twice,
    return_nothing,
    leave_a_scope_open,
    abandon_a_generator,
    go_on_after_the_answer,
    cancel_itself,
    stop_the_loop,
]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    path = scope["path"][1:]
    if path.startswith("mess"):
        await MESSES[int(path[4:]) % len(MESSES)](send)
    else:
        # some honest requests wait in between
        await sleep(0.001 if path.endswith("7") else 0)
        await answer(send, path.encode())


async def honest(port: int, name: int) -> None:
    """Ask on one connection again and again; each answer must be the one to its own request."""
    reader, writer = await asyncio.open_connection(LOCALHOST, port)
    for number in range(REQUESTS):
        path = f"{name}-{number}"
        writer.write(f"GET /{path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        assert await reader.readexactly(len(path)) == path.encode()
    writer.close()
    await writer.wait_closed()


async def dishonest(port: int, numbers: itertools.count[int]) -> None:
    """Ask for one mess after the other, each on a connection of its own; whatever comes back."""
    for _ in range(REQUESTS // 6):
        reader, writer = await asyncio.open_connection(LOCALHOST, port)
        writer.write(f"GET /mess{next(numbers)} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()


async def everybody(port: int) -> None:
    numbers = itertools.count()
    async with asyncio.TaskGroup() as group:
        for name in range(CONNECTIONS):
            group.create_task(dishonest(port, numbers) if name % 3 == 0 else honest(port, name))


@pytest.mark.parametrize("loop", LOOPS)
def test_each_honest_request_is_answered(loop: str) -> None:
    def clients(site: Site) -> None:
        asyncio.run(everybody(site.port))

    serve_on(loop, app, clients, Timeouts(handler=1.5))
