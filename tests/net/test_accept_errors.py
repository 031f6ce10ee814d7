"""What accept(2) throws: errors of one connection are skipped, shortages are waited out."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest
import trio
from trio.testing import MockClock

from deadlined import DeadlineExceeded, Listener, open_tcp_stream
from deadlined.net.listener import _SKIPPED as SKIPPED
from deadlined.runtime import current_host
from tests.support.net import (
    BACKOFF,
    LOCALHOST,
    SHORTAGES,
    Attempt,
    Troubled,
    fails_at_its_deadline,
    local_listener,
    past,
)
from tests.support.poll import refuse_to_watch


@pytest.mark.parametrize("number", sorted(SKIPPED), ids=errno.errorcode.get)
async def test_an_error_of_one_connection_is_skipped_at_once(number: int, autojump_clock: MockClock) -> None:
    troubled = Troubled(number, number, number)
    async with Listener.from_socket(troubled) as listener, await troubled.connect_to_it(), await listener.accept():
        assert troubled.calls == [0.0] * 4


class AlwaysTroubled(Troubled):
    """Fails for ever, which `accept` must survive, and others beside it."""

    def accept(self) -> tuple[socket.socket, object]:
        if len(self.calls) > 10_000:
            pytest.fail("spins, and nobody else runs")
        self.troubles = [errno.ECONNABORTED]
        return super().accept()


@pytest.mark.parametrize("how", ["deadline", "close", "cancel"])
async def test_an_error_that_persists_starves_nobody(how: str) -> None:
    troubled = AlwaysTroubled()
    async with Listener.from_socket(troubled) as listener:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                accept = Attempt(nursery, listener.accept)
                while len(troubled.calls) < 10:
                    await trio.lowlevel.checkpoint()
                if how == "deadline":
                    listener.set_deadline(past())
                elif how == "close":
                    await listener.aclose()
                else:
                    scope.cancel()
        assert scope.cancelled_caught == (how == "cancel")
        if how != "cancel":
            assert accept.raised(DeadlineExceeded if how == "deadline" else trio.ClosedResourceError)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM], ids=errno.errorcode.get)
@pytest.mark.parametrize("way", ["accept", "try_accept"])
async def test_a_connection_that_the_event_queue_does_not_take_is_closed(
    way: str, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As over fs.epoll.max_user_watches: the listener goes on with the next."""
    async with (
        local_listener() as (listener, port),
        await open_tcp_stream(LOCALHOST, port) as refused,
        await open_tcp_stream(LOCALHOST, port) as served,
    ):
        refuse_to_watch(monkeypatch, OSError(number, "the event queue is full"))
        descriptors = current_host().statistics().poller.descriptors
        if way == "try_accept":
            assert listener.try_accept() is None
        async with await listener.accept() as server:
            assert server.socket.getpeername() == served.socket.getsockname()
            assert current_host().statistics().poller.descriptors == descriptors + 1
        assert await refused.receive_some() == b""
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert "the event queue is full" in record.getMessage()


@pytest.mark.parametrize("way", ["accept", "try_accept"])
async def test_a_connection_is_closed_whatever_setting_it_up_raises(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with local_listener() as (listener, port), await open_tcp_stream(LOCALHOST, port) as client:
        refuse_to_watch(monkeypatch, ZeroDivisionError("not foreseen"))
        with pytest.raises(ZeroDivisionError) as caught:
            listener.try_accept() if way == "try_accept" else await listener.accept()
        # kept alive by its frames until here: the end comes from a close, not from the collector
        assert await client.receive_some() == b""
        del caught


class OutOfMemory(Troubled):
    """Python lacks the memory for as many first connections."""

    def accept(self) -> tuple[socket.socket, object]:
        try:
            return super().accept()
        except OSError:
            raise MemoryError from None


@pytest.mark.parametrize("way", ["accept", "try_accept"])
async def test_a_lack_of_memory_is_a_shortage(
    way: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    troubled = OutOfMemory(errno.ENOMEM, errno.ENOMEM)
    async with Listener.from_socket(troubled) as listener, await troubled.connect_to_it():
        if way == "try_accept":
            assert listener.try_accept() is None
        async with await listener.accept():
            assert os.strerror(errno.ENOMEM) in caplog.text


async def test_a_connection_without_memory_for_its_setting_up_is_closed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with (
        local_listener() as (listener, port),
        await open_tcp_stream(LOCALHOST, port) as refused,
        await open_tcp_stream(LOCALHOST, port) as served,
    ):
        refuse_to_watch(monkeypatch, MemoryError())
        async with await listener.accept() as server:
            assert server.socket.getpeername() == served.socket.getsockname()
        assert await refused.receive_some() == b""


@pytest.mark.parametrize("number", SHORTAGES, ids=errno.errorcode.get)
async def test_a_shortage_is_waited_out_longer_and_longer(
    number: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    troubled = Troubled(*[number] * len(BACKOFF))
    async with Listener.from_socket(troubled) as listener, await troubled.connect_to_it(), await listener.accept():
        waits = [later - sooner for sooner, later in zip(troubled.calls, troubled.calls[1:], strict=False)]
        assert waits == pytest.approx(BACKOFF)
        assert len(caplog.records) == len(BACKOFF)
        assert {record.levelno for record in caplog.records} == {logging.WARNING}
        assert os.strerror(number) in caplog.text


async def test_the_next_shortage_begins_with_the_shortest_wait(autojump_clock: MockClock) -> None:
    troubled = Troubled(errno.EMFILE, errno.EMFILE, errno.EAGAIN, errno.EMFILE)
    async with Listener.from_socket(troubled) as listener, trio.open_nursery() as nursery:
        accept = Attempt(nursery, listener.accept)
        await trio.sleep(1.0)
        assert troubled.calls == pytest.approx([0.0, 0.005, 0.015])
        async with await troubled.connect_to_it():
            await accept.done()
            assert troubled.calls[3:] == pytest.approx([1.0, 1.005])
            assert accept.result is not None
            await accept.result.aclose()


async def test_connections_that_come_in_a_shortage_do_not_cut_the_wait_short(autojump_clock: MockClock) -> None:
    troubled = Troubled(*[errno.EMFILE] * 9)
    async with Listener.from_socket(troubled) as listener, AsyncExitStack() as stack, trio.open_nursery() as nursery:
        accept = Attempt(nursery, listener.accept)
        await trio.sleep(1.5)  # within the first wait of a second
        before = len(troubled.calls)
        for _ in range(10):
            await stack.enter_async_context(await troubled.connect_to_it())
            await trio.sleep(0.01)
        assert len(troubled.calls) == before
        await accept.done()
        assert accept.result is not None
        await accept.result.aclose()
        for _ in range(9):
            await stack.enter_async_context(await listener.accept())


async def test_the_deadline_holds_in_a_shortage(autojump_clock: MockClock) -> None:
    troubled = Troubled(*[errno.EMFILE] * 20)
    async with Listener.from_socket(troubled) as listener, await troubled.connect_to_it():
        listener.set_deadline(1.5)
        await fails_at_its_deadline(listener.accept)
        assert trio.current_time() == 1.5


@pytest.mark.parametrize("how", ["deadline", "close", "cancel"])
async def test_a_wait_in_a_shortage_can_be_ended_at_once(how: str, autojump_clock: MockClock) -> None:
    troubled = Troubled(*[errno.EMFILE] * 20)
    async with Listener.from_socket(troubled) as listener, await troubled.connect_to_it():
        async with trio.open_nursery() as nursery:
            accept = Attempt(nursery, listener.accept)
            await trio.sleep(1.5)
            if how == "deadline":
                listener.set_deadline(past())
            elif how == "close":
                await listener.aclose()
            else:
                nursery.cancel_scope.cancel()
        assert accept.ended == 1.5
        if how != "cancel":
            assert accept.raised(DeadlineExceeded if how == "deadline" else trio.ClosedResourceError)


async def test_an_unforeseen_error_comes_out() -> None:
    troubled = Troubled(errno.EINVAL)
    async with Listener.from_socket(troubled) as listener:
        with pytest.raises(trio.BrokenResourceError) as caught:
            await listener.accept()
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.EINVAL


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """The process cannot open anything: its limit is at the first free number."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_out_of_descriptors_it_backs_off_and_loses_no_connection(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with local_listener() as (listener, port), AsyncExitStack() as stack, trio.open_nursery() as nursery:
        clients = [await stack.enter_async_context(await open_tcp_stream(LOCALHOST, port)) for _ in range(3)]
        with no_free_descriptor():
            accept = Attempt(nursery, listener.accept)
            await trio.sleep(10.0)
            assert accept.pending
            # eight waits that double, then one each second
            assert len(caplog.records) == 17
            assert os.strerror(errno.EMFILE) in caplog.text
        await accept.done()
        assert accept.result is not None
        servers = [await stack.enter_async_context(accept.result)]
        servers += [await stack.enter_async_context(await listener.accept()) for _ in range(2)]
        peers = {server.socket.getpeername() for server in servers}
        assert peers == {client.socket.getsockname() for client in clients}
