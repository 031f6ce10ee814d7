"""Handlers that are slow, stubborn or large."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from deadlined.http import Exchange
from tests.support.http import answer, hello

KIB = 1024
# more than the kernel's buffers of both ends take
HUGE = 16 * KIB * KIB

Handler = Callable[[Exchange], Awaitable[object]]


def after(seconds: float, handler: Handler = hello) -> Handler:
    """Return `handler`, delayed."""

    async def late(exchange: Exchange) -> None:
        await trio.sleep(seconds)
        await handler(exchange)

    return late


async def stubborn(exchange: Exchange) -> None:
    """Work for an hour, and be cancelled by nobody; then answer."""
    with trio.CancelScope(shield=True):
        await trio.sleep(3600)
    await answer(exchange)


async def echo_as_it_comes(exchange: Exchange) -> None:
    """Answer with each piece of the body before the next one is received."""
    exchange.start(200, [])
    while piece := await exchange.receive():
        await exchange.send(piece, True)
    await exchange.send(b"", False)


async def huge(exchange: Exchange) -> None:
    await answer(exchange, bytes(HUGE))


async def slow(exchange: Exchange) -> None:
    """Answer after 3 seconds."""
    await trio.sleep(3)
    await answer(exchange)


async def never(exchange: Exchange) -> None:
    await trio.sleep_forever()
