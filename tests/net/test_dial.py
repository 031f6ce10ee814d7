"""Connecting out: the deadline covers the name look-up, the race of the addresses, and the connection itself."""

from __future__ import annotations

import errno
import math
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import Conn, DeadlineExceeded, open_tcp_stream, open_udp, open_unix_listener, open_unix_stream
from deadlined.net.race import why_nobody_answered
from tests.support.net import (
    INF,
    LOCALHOST,
    Attempt,
    after,
    count_sleeps,
    fails_at_its_deadline,
    full_listener,
    local_listener,
    past,
)


class Resolver(trio.abc.HostnameResolver):
    """Answers every name with the given addresses, after `delay` seconds."""

    def __init__(self, *addresses: tuple[str, int], delay: float = 0.0) -> None:
        self.addresses = addresses
        self.delay = delay

    async def getaddrinfo(self, *args: object, **kwargs: object) -> list[tuple[Any, ...]]:
        await trio.sleep(self.delay)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in self.addresses]

    async def getnameinfo(self, *args: object, **kwargs: object) -> tuple[str, str]:
        raise NotImplementedError


def resolve_with(*addresses: tuple[str, int], delay: float = 0.0) -> None:
    """For this run only."""
    trio.socket.set_custom_hostname_resolver(Resolver(*addresses, delay=delay))


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port that is taken, so that nobody else gets it, and that nobody listens on."""
    with socket.socket() as bound:
        bound.bind((LOCALHOST, 0))
        yield bound.getsockname()[1]


# the deadline


@pytest.mark.parametrize("when", [-INF, -5.0, 0.0])
async def test_a_deadline_that_has_come_connects_to_nobody(when: float, autojump_clock: MockClock) -> None:
    async with local_listener() as (listener, port):
        error = await fails_at_its_deadline(lambda: open_tcp_stream(LOCALHOST, port, deadline=when))
        assert (error.op, error.deadline) == ("connect", when)
        assert trio.current_time() == 0.0
        await wait_all_tasks_blocked()
        with pytest.raises(BlockingIOError):
            listener.socket.accept()


@pytest.mark.parametrize("when", [1.0, 1e30, sys.float_info.max, INF])
async def test_a_deadline_ahead_does_not_hinder_and_is_not_inherited(when: float, autojump_clock: MockClock) -> None:
    async with local_listener() as (_, port), await open_tcp_stream(LOCALHOST, port, deadline=when) as client:
        assert client.read_deadline == client.write_deadline == INF
        assert client.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not client.socket.getblocking()


async def test_nan_is_no_deadline(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"(?i)nan"):
        await open_tcp_stream(LOCALHOST, 1, deadline=math.nan)
    with pytest.raises(ValueError, match=r"(?i)nan"):
        await open_unix_stream(tmp_path / "s", deadline=math.nan)


@pytest.mark.parametrize("seconds", [1e-9, 0.25, 2.5])
async def test_a_peer_that_does_not_answer_is_given_up_at_the_deadline(
    seconds: float, autojump_clock: MockClock
) -> None:
    with full_listener() as port:
        error = await fails_at_its_deadline(lambda: open_tcp_stream(LOCALHOST, port, deadline=seconds))
    assert trio.current_time() == error.deadline == seconds


async def test_never_early_on_the_real_clock() -> None:
    with full_listener() as port:
        deadline = after(0.01)
        await fails_at_its_deadline(lambda: open_tcp_stream(LOCALHOST, port, deadline=deadline))
        assert trio.current_time() >= deadline


async def test_the_name_lookup_is_included(autojump_clock: MockClock) -> None:
    async with local_listener() as (_, port):
        resolve_with((LOCALHOST, port), delay=60.0)
        await fails_at_its_deadline(lambda: open_tcp_stream("slow.example", port, deadline=5.0))
        assert trio.current_time() == 5.0
        async with await open_tcp_stream("slow.example", port, deadline=66.0):
            assert trio.current_time() == 65.0


async def test_a_lookup_and_a_connection_share_one_deadline(autojump_clock: MockClock) -> None:
    with full_listener() as port:
        resolve_with((LOCALHOST, port), delay=3.0)
        await fails_at_its_deadline(lambda: open_tcp_stream("slow.example", port, deadline=5.0))
    assert trio.current_time() == 5.0


async def test_the_callers_cancellation_is_not_taken_for_the_deadline(autojump_clock: MockClock) -> None:
    with full_listener() as port:
        with trio.move_on_after(1.0) as scope:
            await open_tcp_stream(LOCALHOST, port, deadline=5.0)
        assert scope.cancelled_caught
        assert trio.current_time() == 1.0
        with trio.move_on_after(10.0) as scope:
            await fails_at_its_deadline(lambda: open_tcp_stream(LOCALHOST, port, deadline=5.0))
        assert not scope.cancelled_caught
        assert trio.current_time() == 5.0


# the addresses


@pytest.mark.parametrize("host", ["localhost", LOCALHOST, b"127.0.0.1"])
async def test_a_host_is_a_name_or_an_address(host: str | bytes) -> None:
    async with local_listener() as (_, port), await open_tcp_stream(host, port) as client:
        assert client.socket.getpeername() == (LOCALHOST, port)


async def test_nobody_listens() -> None:
    with refusing_port() as port, pytest.raises(OSError, match="connect") as caught:
        await open_tcp_stream(LOCALHOST, port, deadline=after(60.0))
    assert not isinstance(caught.value, DeadlineExceeded)


REFUSED, RESET, NO_ROUTE = errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH


@pytest.mark.parametrize(
    ("codes", "kind", "code"),
    [
        ([REFUSED], ConnectionRefusedError, REFUSED),
        ([REFUSED, REFUSED], ConnectionRefusedError, REFUSED),
        ([NO_ROUTE, REFUSED], ConnectionRefusedError, REFUSED),
        ([NO_ROUTE, RESET, REFUSED], ConnectionResetError, RESET),
        ([errno.ETIMEDOUT, NO_ROUTE], TimeoutError, errno.ETIMEDOUT),
        ([NO_ROUTE], OSError, NO_ROUTE),
        ([None], OSError, None),
        ([], OSError, None),
    ],
)
def test_the_error_is_that_of_the_most_telling_attempt(
    codes: list[int | None], kind: type[OSError], code: int | None
) -> None:
    errors = [OSError("it is not known") if code is None else OSError(code, os.strerror(code)) for code in codes]
    error = why_nobody_answered("name:80", INF, errors)
    assert (type(error), error.errno) == (kind, code)
    for attempt in errors:
        assert str(error).count(attempt.strerror or str(attempt)) == 1
    # the number of the error is not repeated in the words
    assert str(error).count("Errno") == (code is not None)
    assert isinstance(error.__cause__, ExceptionGroup) == bool(errors)


async def test_a_name_that_does_not_exist() -> None:
    class Nothing(Resolver):
        async def getaddrinfo(self, *args: object, **kwargs: object) -> list[tuple[Any, ...]]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    trio.socket.set_custom_hostname_resolver(Nothing())
    with pytest.raises(socket.gaierror):
        await open_tcp_stream("nowhere.example", 80, deadline=after(60.0))


async def test_an_address_that_refuses_is_passed_over_at_once(autojump_clock: MockClock) -> None:
    async with local_listener() as (_, port):
        with refusing_port() as refusing:
            resolve_with((LOCALHOST, refusing), (LOCALHOST, port))
            async with await open_tcp_stream("two.example", port, deadline=1.0) as client:
                assert client.socket.getpeername() == (LOCALHOST, port)
    assert trio.current_time() == 0.0


async def test_an_address_that_hangs_is_passed_over_after_a_moment(autojump_clock: MockClock) -> None:
    async with local_listener() as (_, port):
        with full_listener() as hanging:
            resolve_with((LOCALHOST, hanging), (LOCALHOST, port))
            async with await open_tcp_stream("two.example", port, deadline=1.0) as client:
                assert client.socket.getpeername() == (LOCALHOST, port)
    assert 0.0 < trio.current_time() < 1.0


async def test_an_address_that_refuses_takes_no_time_from_the_next_one(autojump_clock: MockClock) -> None:
    async with local_listener() as (_, port):
        with refusing_port() as refusing, full_listener() as hanging:
            resolve_with((LOCALHOST, refusing), (LOCALHOST, hanging), (LOCALHOST, port))
            (await open_tcp_stream("three.example", port, deadline=1.0)).close()
    assert trio.current_time() == 0.25


async def test_addresses_that_all_hang_are_given_up_together(autojump_clock: MockClock) -> None:
    with full_listener() as one, full_listener() as other:
        resolve_with((LOCALHOST, one), (LOCALHOST, other))
        await fails_at_its_deadline(lambda: open_tcp_stream("two.example", 80, deadline=1.0))
    assert trio.current_time() == 1.0


async def test_connecting_is_a_checkpoint(tmp_path: Path) -> None:
    conns: list[Conn] = []
    async with local_listener() as (_, port), await open_unix_listener(tmp_path / "s"):

        async def connect(how: Callable[[], Any]) -> None:
            conns.append(await how())

        assert await count_sleeps(lambda: connect(lambda: open_tcp_stream(LOCALHOST, port))) > 0
        assert await count_sleeps(lambda: connect(lambda: open_unix_stream(tmp_path / "s"))) > 0
        for conn in conns:
            await conn.aclose()


# unix sockets


@pytest.mark.parametrize("as_type", [str, bytes, Path, trio.Path])
async def test_a_unix_stream(tmp_path: Path, as_type: Callable[[Path], str | bytes | os.PathLike[str]]) -> None:
    path = tmp_path / "s"
    async with (
        await open_unix_listener(path) as listener,
        await open_unix_stream(as_type(path), deadline=after(60.0)) as client,
        await listener.accept() as server,
    ):
        assert client.read_deadline == client.write_deadline == INF
        await server.send_all(b"x")
        assert await client.receive_some() == b"x"


async def test_a_unix_stream_past_its_deadline(tmp_path: Path) -> None:
    async with await open_unix_listener(tmp_path / "s") as listener:
        error = await fails_at_its_deadline(lambda: open_unix_stream(tmp_path / "s", deadline=past()))
        assert error.op == "connect"
        with pytest.raises(BlockingIOError):
            listener.socket.accept()


@contextmanager
def full_unix_listener(path: Path) -> Iterator[socket.socket]:
    """A listener whose queue is full: connecting to it fails with EAGAIN until somebody accepts."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(path))
        listening.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(str(path))
        yield listening


async def test_a_full_unix_queue_is_given_up_at_the_deadline(tmp_path: Path, autojump_clock: MockClock) -> None:
    with full_unix_listener(tmp_path / "s"):
        error = await fails_at_its_deadline(lambda: open_unix_stream(tmp_path / "s", deadline=60.0))
        assert (error.op, error.deadline, trio.current_time()) == ("connect", 60.0, 60.0)


async def test_a_full_unix_queue_is_waited_out_and_the_conn_is_connected(
    tmp_path: Path, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    with full_unix_listener(tmp_path / "s") as listening:
        dial = Attempt(nursery, lambda: open_unix_stream(tmp_path / "s"))
        for seconds in (0.0, 0.005, 0.01):
            mock_clock.jump(seconds)
            await wait_all_tasks_blocked()
            assert dial.pending
        listening.accept()[0].close()
        await wait_all_tasks_blocked()
        assert dial.pending
        # no retry is farther away than this
        mock_clock.jump(0.1)
        await dial.done()
        assert dial.result is not None
        async with dial.result as client:
            await client.send_all(b"x")
            assert client.socket.getpeername() == str(tmp_path / "s")


class SamePort(socket.socket):
    """A socket for which the kernel chooses the port that it is to connect to, which it may if nobody listens there."""

    def connect_ex(self, address: Any) -> int:
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.bind(address)
        return super().connect_ex(address)


async def test_a_connection_to_itself_is_refused_and_leaves_the_port_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing_port() as port:
        pass
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", SamePort)
        with pytest.raises(ConnectionRefusedError, match=f"{LOCALHOST}:{port} failed: Connection refused"):
            await open_tcp_stream(LOCALHOST, port)
    with socket.socket() as server:
        server.bind((LOCALHOST, port))


async def test_a_unix_path_that_is_not_there_or_not_listened_on(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with pytest.raises(FileNotFoundError, match=path) as missing:
        await open_unix_stream(path, deadline=after(60.0))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
        with pytest.raises(ConnectionRefusedError, match=path) as refused:
            await open_unix_stream(path, deadline=after(60.0))
    assert missing.value.filename == refused.value.filename == path


async def test_a_unix_path_that_is_too_long_is_told_in_words() -> None:
    with pytest.raises(OSError, match="too long"):
        await open_unix_stream("x" * 200)


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
@pytest.mark.parametrize("as_type", [str, str.encode])
async def test_an_abstract_name(tmp_path: Path, as_type: Callable[[str], str | bytes]) -> None:
    name = f"\0{tmp_path}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen()
        async with await open_unix_stream(as_type(name)) as client, Conn.from_socket(listening.accept()[0]) as server:
            await server.send_all(b"x")
            assert await client.receive_some() == b"x"


async def test_a_path_or_host_that_is_missing_is_a_mistake_of_the_program() -> None:
    missing: Any = None
    with pytest.raises(TypeError, match="not NoneType"):
        await open_unix_stream(missing)
    hosts: list[Any] = [missing, 2130706433, ip_address(LOCALHOST)]
    for host in hosts:
        with pytest.raises(TypeError, match="host must be"):
            await open_tcp_stream(host, 1)
        with pytest.raises(TypeError, match="host must be"):
            await open_udp(remote=(host, 1))
