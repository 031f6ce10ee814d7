"""Listeners and outgoing connections, on every event loop."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from deadlined import (
    ClosedResourceError,
    Conn,
    DeadlineExceeded,
    Listener,
    open_tcp_listeners,
    open_tcp_stream,
    open_udp,
    open_unix_listener,
    open_unix_stream,
    serve_tcp,
)
from deadlined.net import race
from deadlined.net.listen import listening_sockets
from deadlined.net.names import AddressInfo
from tests.support.conformance import Loop, in_virtual_time, on_each_loop, on_loops, pretend
from tests.support.net import (
    BACKOFF,
    LOCALHOST,
    SHORTAGES,
    Troubled,
    full_listener,
    local_listener,
    port_of,
    refuse_when_full,
)


@on_each_loop
async def test_connections_are_accepted_in_order(loop: Loop) -> None:
    async with local_listener() as (listener, port):
        for number in range(5):
            async with await open_tcp_stream(LOCALHOST, port) as client, await listener.accept() as server:
                await client.send_all(b"%d" % number)
                assert await server.receive_some() == b"%d" % number


@on_each_loop
async def test_an_accept_ends_at_its_deadline(loop: Loop) -> None:
    async with local_listener() as (listener, port):
        when = loop.after(5)
        listener.set_deadline(when)
        with pytest.raises(DeadlineExceeded) as caught:
            await listener.accept()
        assert loop.is_at(when)
        assert caught.value.op == "accept"
        async with await open_tcp_stream(LOCALHOST, port):
            with pytest.raises(DeadlineExceeded):
                await listener.accept()
            listener.set_timeout(loop.seconds(1000))
            (await listener.accept()).close()


@on_each_loop
async def test_a_close_wakes_an_accept(loop: Loop) -> None:
    async with local_listener() as (listener, _), loop.tasks() as tasks:
        accepting = tasks.start(listener.accept)
        await loop.settle()
        await listener.aclose()
        await accepting.fails_with(ClosedResourceError)


@on_each_loop
async def test_a_cancelled_accept_loses_no_connection(loop: Loop) -> None:
    async with local_listener() as (listener, port), loop.tasks() as tasks:
        for _ in range(10):
            accepting = tasks.start(listener.accept)
            await loop.settle()
            async with await open_tcp_stream(LOCALHOST, port) as client:
                accepting.cancel()
                await accepting.wait()
                async with accepting.result or await listener.accept() as server:
                    await server.send_all(b"here")
                    assert await client.receive_some() == b"here"


@in_virtual_time
@pytest.mark.parametrize("shortage", SHORTAGES)
async def test_a_shortage_is_waited_out_as_go_does(loop: Loop, shortage: int) -> None:
    sock = Troubled(*[shortage] * len(BACKOFF))
    async with Listener.from_socket(sock) as listener, await open_tcp_stream(*sock.getsockname()):
        (await listener.accept()).close()
        waits = [later - earlier for earlier, later in zip(sock.calls, sock.calls[1:], strict=False)]
        assert waits == pytest.approx(BACKOFF)


@on_each_loop
async def test_a_shortage_ends_by_the_deadline_and_by_a_close(loop: Loop) -> None:
    sock = Troubled(*[errno.EMFILE] * 100)
    async with Listener.from_socket(sock) as listener, loop.tasks() as tasks:
        when = loop.after(2)
        listener.set_deadline(when)
        with pytest.raises(DeadlineExceeded):
            await listener.accept()
        assert loop.is_at(when)
        listener.set_deadline(float("inf"))
        accepting = tasks.start(listener.accept)
        await loop.settle()
        listener.close()
        await accepting.fails_with(ClosedResourceError)


@on_each_loop
async def test_errors_of_one_connection_are_skipped(loop: Loop) -> None:
    sock = Troubled(errno.ECONNABORTED, errno.EPROTO, errno.EPERM)
    async with Listener.from_socket(sock) as listener, await open_tcp_stream(*sock.getsockname()):
        (await listener.accept()).close()
        assert not sock.troubles


@on_each_loop
async def test_a_unix_listener_replaces_a_dead_file_and_removes_its_own(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with await open_unix_listener(path, mode=0o600) as listener:
        async with await open_unix_stream(path) as client, await listener.accept() as server:
            await client.send_all(b"unix")
            assert await server.receive_some() == b"unix"
        with pytest.raises(OSError, match="use") as caught:
            await open_unix_listener(path)
        assert caught.value.errno == errno.EADDRINUSE
    assert not path.exists()


@in_virtual_time
async def test_the_file_of_a_full_unix_listener_stays_where_the_kernel_refuses_then(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "socket"
    async with (
        await open_unix_listener(path, backlog=0) as listener,
        await open_unix_stream(path),
        loop.tasks() as tasks,
    ):
        refuse_when_full(monkeypatch)
        opening = tasks.start(open_unix_listener, path)
        # the event loop runs meanwhile
        await loop.settle()
        assert opening.pending
        (await listener.accept()).close()
        assert (await opening.fails_with(OSError)).errno == errno.EADDRINUSE
        assert path.is_socket()


@on_each_loop
async def test_a_dial_to_a_full_unix_listener_waits_for_room(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with await open_unix_listener(path, backlog=0) as listener, loop.tasks() as tasks:
        first = await open_unix_stream(path)
        when = loop.after(5)
        with pytest.raises(DeadlineExceeded):
            await open_unix_stream(path, deadline=when)
        assert loop.is_at(when)
        dialing = tasks.start(open_unix_stream, path)
        await loop.settle()
        assert dialing.pending
        (await listener.accept()).close()
        (await dialing.succeeds()).close()
        (await listener.accept()).close()
        first.close()


# outgoing connections


@on_each_loop
async def test_a_dial_ends_at_its_deadline(loop: Loop) -> None:
    with full_listener() as port:
        when = loop.after(5)
        with pytest.raises(DeadlineExceeded) as caught:
            await open_tcp_stream(LOCALHOST, port, deadline=when)
        assert loop.is_at(when)
        assert caught.value.op == "connect"
        with pytest.raises(DeadlineExceeded):
            await open_tcp_stream(LOCALHOST, port, deadline=loop.after(-5))
        with pytest.raises(ValueError, match="NaN"):
            await open_tcp_stream(LOCALHOST, port, deadline=float("nan"))


@on_each_loop
async def test_a_refused_dial_says_so(loop: Loop) -> None:
    async with local_listener() as (_, port):
        pass
    with pytest.raises(ConnectionRefusedError, match=f"to {LOCALHOST}:{port} failed: Connection refused") as caught:
        await open_tcp_stream(LOCALHOST, port)
    assert caught.value.errno == errno.ECONNREFUSED


@on_each_loop
async def test_a_cancelled_dial_leaves_nothing(loop: Loop) -> None:
    with full_listener() as port:
        async with loop.tasks() as tasks:
            dialing = tasks.start(open_tcp_stream, LOCALHOST, port)
            await loop.sleep(1)
            dialing.cancel()
            await dialing.wait()
            assert dialing.cancelled


@on_each_loop
async def test_the_look_up_counts_for_the_deadline(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: int) -> None:
        await loop.forever()

    with monkeypatch.context() as patch:
        pretend(patch, hang)
        when = loop.after(5)
        with pytest.raises(DeadlineExceeded):
            await open_tcp_stream("slow.example", 80, deadline=when)
        assert loop.is_at(when)
        async with loop.tasks() as tasks:
            dialing = tasks.start(open_tcp_stream, "slow.example", 80)
            await loop.settle()
            dialing.cancel()
            await dialing.wait()
            assert dialing.cancelled


@on_each_loop
async def test_a_look_up_that_fails_is_an_oserror(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: int) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    with monkeypatch.context() as patch:
        pretend(patch, fail)
        for deadline in (float("inf"), loop.after(3600)):
            with pytest.raises(socket.gaierror, match=r"no such name: 'nowhere\.example'"):
                await open_tcp_stream("nowhere.example", 80, deadline=deadline)


@on_each_loop
async def test_the_errors_of_a_unix_socket_name_its_path(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with pytest.raises(FileNotFoundError, match=f"No such file or directory: '{path}'"):
        await open_unix_stream(path)
    async with await open_unix_listener(path):
        with pytest.raises(OSError, match=f"Address already in use: '{path}'"):
            await open_unix_listener(path)
    with pytest.raises(OSError, match=r"path too long$"):
        await open_unix_stream("x" * 1000)


@on_each_loop
async def test_an_address_is_not_looked_up(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: int) -> None:
        raise AssertionError("no thread may be asked for it")

    with monkeypatch.context() as patch:
        pretend(patch, fail)
        for listener in await open_tcp_listeners(0, host=LOCALHOST):
            async with listener:
                port = listener.socket.getsockname()[1]
                for host in (LOCALHOST, LOCALHOST.encode()):
                    (await open_tcp_stream(host, port, deadline=loop.after(3600))).close()
        for listener in await open_tcp_listeners(0):
            listener.close()
        await (await open_udp(LOCALHOST)).aclose()


@pytest.mark.parametrize("host", ["127.0.0.1\0.example", b"127.0.0.1\0.example", "localhost\0"])
@on_each_loop
async def test_a_host_ends_where_its_text_does(loop: Loop, host: str | bytes) -> None:
    with pytest.raises(socket.gaierror, match="cannot be the name of a host"):
        await open_tcp_stream(host, 80)
    with pytest.raises(socket.gaierror, match="cannot be the name of a host"):
        await open_tcp_listeners(0, host=host)
    with pytest.raises(socket.gaierror, match="cannot be the name of a host"):
        listening_sockets(0, host)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example", "ü..example"])
@on_each_loop
async def test_what_cannot_be_a_name_has_no_address(loop: Loop, host: str) -> None:
    for deadline in (float("inf"), loop.after(3600)):
        with pytest.raises(socket.gaierror):
            await open_tcp_stream(host, 80, deadline=deadline)
    with pytest.raises(socket.gaierror):
        await open_tcp_listeners(0, host=host)
    with pytest.raises(socket.gaierror):
        listening_sockets(0, host)


@pytest.mark.parametrize("port", [-1, 65536, 2**40])
@on_each_loop
async def test_a_port_that_cannot_be_is_an_error(loop: Loop, port: int) -> None:
    with pytest.raises(ValueError, match=f"port must be from 0 to 65535, not {port}"):
        await open_tcp_stream(LOCALHOST, port)
    with pytest.raises(ValueError, match=f"port must be from 0 to 65535, not {port}"):
        await open_tcp_listeners(port)


@on_each_loop
async def test_a_name_that_must_be_encoded_is_looked_up_in_a_thread(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def note(port: int) -> None:
        asked.append(port)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    with monkeypatch.context() as patch:
        pretend(patch, note)
        with pytest.raises(socket.gaierror):
            await open_tcp_stream("ä" * 100_000, 80)
    assert asked == [80]


def address(port: int) -> AddressInfo:
    return (socket.AF_INET, socket.SOCK_STREAM, 0, "", (LOCALHOST, port))


@on_each_loop
async def test_a_race_is_won_by_the_address_that_answers(loop: Loop) -> None:
    async with local_listener() as (_, closed):
        pass
    with full_listener() as full:
        async with local_listener() as (listener, port):
            candidates = [address(closed), address(full), address(port)]
            conn = await race.Race(candidates, loop.after(3600)).run()
            assert conn is not None
            async with conn, await listener.accept() as server:
                await server.send_all(b"won")
                assert await conn.receive_some() == b"won"


if sys.version_info >= (3, 12):

    @on_loops("asyncio")
    async def test_an_address_that_fails_at_once_costs_no_time_where_tasks_are_eager(loop: Loop) -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        unreachable = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("255.255.255.255", 80))
        start = loop.after(0)
        async with local_listener() as (_, port):
            conn = await race.Race([unreachable, address(port)], loop.after(3600)).run()
            assert conn is not None
            conn.close()
        assert await race.Race([unreachable, unreachable], loop.after(3600)).run() is None
        assert loop.is_at(start)


@on_each_loop
async def test_a_race_that_two_addresses_win_at_once_leaks_no_connection(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "_DELAY", 0.0)
    async with local_listener() as (first, port), local_listener() as (second, other):
        conn = await race.Race([address(port), address(other)], loop.after(3600)).run()
        assert conn is not None
        conn.close()
        for listener in (first, second):
            async with await listener.accept() as server:
                assert await server.receive_some() == b""


@on_each_loop
async def test_a_race_that_is_cancelled_when_it_is_won_leaks_no_connection(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "_DELAY", 0.0)
    with full_listener() as full:
        async with local_listener() as (_, port), loop.tasks() as tasks:
            for steps in range(12):
                winner = race.Race([address(full), address(port)], loop.after(3600))
                racing = tasks.start(winner.run)
                while winner._winner is None and racing.pending:
                    await loop.step()
                for _ in range(steps):
                    await loop.step()
                racing.cancel()
                await racing.wait()
                if racing.error is None:
                    racing.result.close()


class Status:
    """What `serve_tcp` tells its listeners to."""

    port: int | None = None

    def started(self, listeners: list[Listener]) -> None:
        self.port = port_of(listeners[0])

    async def known(self, loop: Loop) -> int:
        """Wait for the port."""
        while self.port is None:
            await loop.step()
        return self.port


@on_each_loop
async def test_serve_tcp_runs_a_handler_per_connection(loop: Loop) -> None:
    async def echo(conn: Conn) -> None:
        async for data in conn:
            await conn.send_all(data)

    status = Status()
    async with loop.tasks() as tasks:
        serving = tasks.start(lambda: serve_tcp(echo, 0, host=LOCALHOST, task_status=status))
        port = await status.known(loop)
        for _ in range(3):
            async with await open_tcp_stream(LOCALHOST, port) as client:
                await client.send_all(b"echo")
                assert await client.receive_some() == b"echo"
        serving.cancel()
        await serving.wait()


@on_each_loop
@pytest.mark.parametrize("steps", range(5))
async def test_serve_tcp_closes_what_it_has_accepted_whenever_it_is_cancelled(loop: Loop, steps: int) -> None:
    """A task of asyncio that is cancelled before its first step does not run at all."""
    status = Status()
    with ExitStack() as stack:
        async with loop.tasks() as tasks:
            serving = tasks.start(lambda: serve_tcp(lambda _: loop.forever(), 0, host=LOCALHOST, task_status=status))
            port = await status.known(loop)
            for _ in range(5):
                stack.enter_context(socket.create_connection((LOCALHOST, port)))
            for _ in range(steps):
                await loop.step()
            serving.cancel()
            await serving.wait()
        # the test fails if a descriptor is still watched


class EndedNursery:
    """A nursery of trio or of anyio that takes no more tasks."""

    def start_soon(self, *_: object) -> None:
        raise RuntimeError("it has ended")


class EndedGroup:
    """The same of asyncio."""

    def create_task(self, _: object) -> None:
        raise RuntimeError("it has ended")


async def unwanted(_: Conn) -> None:
    raise AssertionError("it must not be called")


@pytest.mark.parametrize("ended", [EndedNursery, EndedGroup])
@on_each_loop
async def test_a_connection_for_which_no_task_can_be_started_is_closed(loop: Loop, ended: Callable[[], object]) -> None:
    status = Status()

    async def serve() -> None:
        await serve_tcp(unwanted, 0, host=LOCALHOST, handler_nursery=ended(), task_status=status)

    async with loop.tasks() as tasks:
        serving = tasks.start(serve)
        async with await open_tcp_stream(LOCALHOST, await status.known(loop)) as client:
            assert await client.receive_some() == b""
        await serving.wait()
        # whoever keeps the error keeps what the frames of its traceback hold
        assert isinstance(serving.error, ExceptionGroup)


@in_virtual_time
async def test_all_interfaces_are_listened_on(loop: Loop) -> None:
    listeners = await open_tcp_listeners(0)
    try:
        assert {listener.socket.family for listener in listeners} >= {socket.AF_INET}
    finally:
        for listener in listeners:
            listener.close()


@on_each_loop
async def test_accept_if_takes_nothing_while_there_is_no_room(loop: Loop) -> None:
    room: list[bool] = []
    begun: list[Conn] = []
    async with local_listener() as (listener, port), loop.tasks() as tasks:
        accepting = tasks.start(listener.accept_if, lambda: bool(room), begun.append)
        await loop.settle()
        assert accepting.pending
        client = await open_tcp_stream(LOCALHOST, port)
        assert await accepting.succeeds() is False
        # one is waiting already
        assert await listener.accept_if(lambda: bool(room), begun.append) is False
        assert not begun
        room.append(True)
        assert await listener.accept_if(lambda: bool(room), begun.append) is True
        (conn,) = begun
        conn.close()
        client.close()
