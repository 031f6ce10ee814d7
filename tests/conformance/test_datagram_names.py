"""Datagrams to names, on every event loop: a look-up blocks nobody, and ends as a wait for room does."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from deadlined import (
    ClosedResourceError,
    DeadlineExceeded,
    PacketConn,
    open_udp,
)
from tests.support.conformance import Loop, on_each_loop, pretend
from tests.support.net import LOCALHOST, needs_ipv6

NAME = "metrics.example"


def found(*addresses: Any) -> list[Any]:
    """What `getaddrinfo` returns for these socket addresses."""
    return [(family_of(address), socket.SOCK_DGRAM, 0, "", address) for address in addresses]


def family_of(address: tuple[Any, ...]) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


def port_of(conn: PacketConn) -> int:
    port: int = conn.socket.getsockname()[1]
    return port


class HangingNames:
    """Look-ups that take their time."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.asked = 0
        self.ended = 0

    async def look_up(self, port: int) -> Any:
        self.asked += 1
        try:
            await self._loop.forever()
        finally:
            self.ended += 1


@on_each_loop
async def test_a_name_is_reached(loop: Loop) -> None:
    async with await open_udp(LOCALHOST) as server, await open_udp(LOCALHOST) as client:
        for number in range(2):
            await client.send_to(b"%d" % number, ("localhost", port_of(server)))
            assert await server.receive_from() == (b"%d" % number, client.socket.getsockname())


@pytest.mark.parametrize("name", [NAME, NAME.encode()])
@on_each_loop
async def test_a_name_is_looked_up_without_blocking(
    loop: Loop, name: str | bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = loop.event()

    async def look_up(port: int) -> Any:
        await answered.wait()
        return found(("::1", port, 0, 0), (LOCALHOST, port))

    async with await open_udp(LOCALHOST) as server, await open_udp(LOCALHOST) as client, loop.tasks() as tasks:
        with monkeypatch.context() as patch:
            pretend(patch, look_up)
            client.set_write_timeout(loop.seconds(10000))
            sending = tasks.start(client.send_to, b"x", (name, port_of(server)))
            await loop.sleep(1)
            assert sending.pending
            answered.set()
            await sending.succeeds()
        assert (await server.receive_from())[0] == b"x"


@pytest.mark.parametrize("setter", ["set_deadline", "set_write_deadline", "set_timeout", "set_write_timeout"])
@on_each_loop
async def test_no_other_send_waits_for_a_look_up(loop: Loop, setter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = HangingNames(loop)
    async with await open_udp(LOCALHOST) as server, await open_udp(LOCALHOST) as client, loop.tasks() as tasks:
        with monkeypatch.context() as patch:
            pretend(patch, names.look_up)
            sends = [tasks.start(client.send_to, b"x", (NAME, 9)) for _ in range(3)]
            await loop.settle()
            assert names.asked == 3
            await client.send_to(b"y", server.socket.getsockname())
            assert (await server.receive_from())[0] == b"y"
            getattr(client, setter)(loop.after(1) if "deadline" in setter else loop.seconds(1))
            for send in sends:
                assert (await send.fails_with(DeadlineExceeded)).op == "write"
            assert names.ended == 3


@on_each_loop
async def test_the_look_up_ends_at_the_write_deadline(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    names = HangingNames(loop)
    async with await open_udp(LOCALHOST) as server, await open_udp(LOCALHOST) as client, loop.tasks() as tasks:
        with monkeypatch.context() as patch:
            pretend(patch, names.look_up)
            client.set_write_timeout(loop.seconds(5))
            sending = tasks.start(client.send_to, b"x", (NAME, port_of(server)))
            await loop.sleep(1)
            # a deadline that is moved counts for what is pending
            later = loop.after(10)
            client.set_write_deadline(later)
            error = await sending.fails_with(DeadlineExceeded)
            assert loop.is_at(later)
            assert (error.op, error.deadline) == ("write", later)
            assert (names.asked, names.ended) == (1, 1)
            with pytest.raises(DeadlineExceeded):
                await client.send_to(b"y", (NAME, port_of(server)))
            assert names.asked == 1
        client.set_write_deadline(float("inf"))
        await client.send_to(b"z", server.socket.getsockname())
        assert (await server.receive_from())[0] == b"z"


@on_each_loop
async def test_a_close_and_a_cancellation_end_the_look_up(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    names = HangingNames(loop)
    async with await open_udp(LOCALHOST) as client, loop.tasks() as tasks:
        with monkeypatch.context() as patch:
            pretend(patch, names.look_up)
            sending = tasks.start(client.send_to, b"x", (NAME, 9))
            await loop.settle()
            sending.cancel()
            await sending.wait()
            assert sending.cancelled
            assert (names.asked, names.ended) == (1, 1)
            sending = tasks.start(client.send_to, b"x", (NAME, 9))
            await loop.settle()
            await client.aclose()
            await sending.fails_with(ClosedResourceError)
            assert (names.asked, names.ended) == (2, 2)


@on_each_loop
async def test_a_close_just_before_the_look_up_is_a_close(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    names = HangingNames(loop)
    async with await open_udp(LOCALHOST) as client, loop.tasks() as tasks:
        with monkeypatch.context() as patch:
            pretend(patch, names.look_up)
            sending = tasks.start(client.send_to, b"x", (NAME, 9))
            # in the same turn of the loop
            tasks.start(client.aclose)
            await sending.fails_with(ClosedResourceError)


@on_each_loop
async def test_a_close_at_the_end_of_the_look_up_is_a_close(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(port: int) -> Any:
        await loop.settle()
        tasks.start(client.aclose)
        return found((LOCALHOST, port))

    async with await open_udp(LOCALHOST) as client, loop.tasks() as tasks:
        with monkeypatch.context() as patch:
            pretend(patch, look_up)
            with pytest.raises(ClosedResourceError):
                await client.send_to(b"x", (NAME, 9))


@on_each_loop
async def test_a_name_without_an_address_is_an_oserror(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(port: int) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    async def find_ipv6(port: int) -> Any:
        return found(("::1", port, 0, 0))

    async with await open_udp(LOCALHOST) as server, await open_udp(LOCALHOST) as client:
        with monkeypatch.context() as patch:
            pretend(patch, fail)
            with pytest.raises(socket.gaierror, match="no such name"):
                await client.send_to(b"x", (NAME, 9))
        with monkeypatch.context() as patch:
            pretend(patch, find_ipv6)
            with pytest.raises(OSError, match="no address in the socket's family") as caught:
                await client.send_to(b"x", (NAME, 9))
            assert caught.value.errno == errno.EAFNOSUPPORT
        with pytest.raises(ValueError, match="port must be"):
            await client.send_to(b"x", (NAME, 65536 + 9))
        await client.send_to(b"y", server.socket.getsockname())
        assert (await server.receive_from())[0] == b"y"


@needs_ipv6
@on_each_loop
async def test_the_scope_of_a_name_is_the_callers(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def find_local(port: int) -> Any:
        return found(("fe80::1", port, 0, 0))

    scope = 12345
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as plain, pytest.raises(OSError) as expected:
        # there is no such interface
        plain.sendto(b"x", ("fe80::1", 9, 0, scope))
    async with await open_udp("::1") as client:
        with monkeypatch.context() as patch:
            pretend(patch, find_local)
            with pytest.raises(OSError) as caught:
                await client.send_to(b"x", (NAME, 9, 0, scope))
    assert caught.value.errno == expected.value.errno


@pytest.mark.parametrize(
    "of",
    [
        lambda port: (LOCALHOST, port),
        lambda port: (LOCALHOST.encode(), port),
        lambda port: ("", port),
        pytest.param(lambda port: ("::1", port), marks=needs_ipv6),
        pytest.param(lambda port: ("::1%1", port), marks=needs_ipv6),
        pytest.param(lambda port: ("::1", port, 0, 0), marks=needs_ipv6),
        pytest.param(lambda port: (b"::1", port, 0, 0), marks=needs_ipv6),
    ],
)
@on_each_loop
async def test_an_address_is_not_looked_up(
    loop: Loop, of: Callable[[int], tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(port: int) -> Any:
        raise AssertionError("no thread may be asked for it")

    host = "::1" if ":" in str(of(0)[0]) else LOCALHOST
    async with await open_udp(host) as server, await open_udp(host) as client:
        with monkeypatch.context() as patch:
            pretend(patch, fail)
            await client.send_to(b"x", of(port_of(server)))
            assert (await server.receive_from())[0] == b"x"


@pytest.mark.parametrize("address", [(), (LOCALHOST,), LOCALHOST, (None, 9), (9, 9), 9])
@on_each_loop
async def test_what_is_no_address_is_refused(loop: Loop, address: Any) -> None:
    async with await open_udp(LOCALHOST) as client:
        with pytest.raises(TypeError):
            await client.send_to(b"x", address)


@on_each_loop
async def test_a_broadcast_is_no_name(loop: Loop) -> None:
    async with await open_udp(LOCALHOST) as client:
        with pytest.raises(PermissionError):
            # the socket has no SO_BROADCAST
            await client.send_to(b"x", ("<broadcast>", 9))
