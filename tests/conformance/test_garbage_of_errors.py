"""The error of an operation leaves no reference cycle for the collector: it would keep a connection, and what was sent.

A program that tries again until a server is up, or cuts clients that do not read, makes one error after another.
"""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from deadlined import DeadlineExceeded, open_tcp_stream
from deadlined.net import dial
from deadlined.net.names import AddressInfo
from deadlined.runtime import open_group
from tests.support.conformance import Loop, on_each_loop
from tests.support.garbage import assert_leaves_no_garbage
from tests.support.net import LOCALHOST, full_listener, local_listener

# not a name, which is noticed where names are looked up
NO_NAME = "a..b"


@on_each_loop
async def test_a_connection_that_is_refused(loop: Loop) -> None:
    async def dial(port: int) -> None:
        with suppress(ConnectionRefusedError):
            await open_tcp_stream(LOCALHOST, port)

    with socket.socket() as bound:
        bound.bind((LOCALHOST, 0))
        await assert_leaves_no_garbage(lambda: dial(bound.getsockname()[1]))


@on_each_loop
async def test_a_connection_to_the_second_address(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """As to "localhost", whose first address is often one of IPv6 that nobody listens on."""

    async def look_up(*_: object) -> list[AddressInfo]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (LOCALHOST, number)) for number in (refused, port)]

    async def connect() -> None:
        (await open_tcp_stream("name.example", port)).close()

    monkeypatch.setattr(dial, "look_up_by", look_up)
    with socket.socket() as bound:
        bound.bind((LOCALHOST, 0))
        refused = bound.getsockname()[1]
        async with local_listener() as (_, port):
            await assert_leaves_no_garbage(connect)


@on_each_loop
async def test_a_connection_that_is_late(loop: Loop) -> None:
    async def dial(port: int) -> None:
        with suppress(DeadlineExceeded):
            await open_tcp_stream(LOCALHOST, port, deadline=loop.after(1))

    with full_listener() as port:
        await assert_leaves_no_garbage(lambda: dial(port))


@on_each_loop
async def test_a_name_that_is_not_found(loop: Loop) -> None:
    async def dial() -> None:
        with suppress(OSError):
            await open_tcp_stream(NO_NAME, 1, deadline=loop.after(60))

    await assert_leaves_no_garbage(dial)


@on_each_loop
@pytest.mark.parametrize("fails", [False, True], ids=["", "and whose task fails"])
@pytest.mark.parametrize("waits", [False, True], ids=["at its end", "in its block"])
async def test_a_group_that_is_cancelled(loop: Loop, waits: bool, fails: bool) -> None:
    async def work() -> None:
        try:
            await loop.forever()
        finally:
            if fails:
                raise LookupError

    async def hold() -> None:
        with suppress(BaseException):
            async with open_group() as group:
                group.start_soon(work)
                if waits:
                    await loop.forever()

    async def cancel() -> None:
        running = tasks.start(hold)
        await loop.settle()
        running.cancel()
        await running.wait()

    async with loop.tasks() as tasks:
        await assert_leaves_no_garbage(cancel)
