"""Event loops that begin and end in every way: one after another, in threads, forked, interrupted, or just dropped."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio
import uvloop

from deadlined import (
    Conn,
    DeadlineExceeded,
    Listener,
    PacketConn,
    Timer,
    after_func,
    current_time,
    open_udp,
    open_unix_listener,
    sleep,
    statistics,
)
from deadlined.net import datagram
from deadlined.runtime import LOOPS, current_host, require_loop, run
from deadlined.runtime.forking import inherited
from tests.support.conformance import Loop, SteppedLoop, on_asyncio, on_each_loop
from tests.support.net import unix_pair
from tests.support.runtime import exit_status_of, in_thread

each_loop = pytest.mark.parametrize("loop", LOOPS)
each_asyncio = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
NewLoop = Callable[[], asyncio.AbstractEventLoop]


async def use() -> str:
    """Use a stream and a deadline; return the host's library."""
    async with unix_pair() as (conn, peer):
        conn.set_read_timeout(0.001)
        with pytest.raises(DeadlineExceeded):
            await conn.receive_some()
        conn.set_read_timeout(20)
        await peer.send_all(b"x")
        assert await conn.receive_some() == b"x"
    return current_host().library


@each_loop
def test_run_returns_the_result_and_raises_the_error(loop: str) -> None:
    async def double(number: int) -> int:
        await sleep(0)
        return 2 * number

    async def fail() -> None:
        raise RuntimeError("its own")

    assert run(loop, double, 21) == 42
    with pytest.raises(RuntimeError, match="its own"):
        run(loop, fail)
    assert run(loop, use) == ("trio" if loop == "trio" else "asyncio")


def test_unknown_loops_are_refused() -> None:
    with pytest.raises(ValueError, match="trio, asyncio, uvloop"):
        require_loop("twisted")


@each_loop
def test_a_run_inside_of_a_run_is_refused(loop: str) -> None:
    async def inner() -> None: ...

    async def outer() -> None:
        with pytest.raises(RuntimeError):
            run(loop, inner)

    run(loop, outer)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_stop_of_the_loop_does_not_end_the_run(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def stops() -> str:
        asyncio.get_running_loop().stop()
        await sleep(0.001)
        return await use()

    assert run(loop, stops) == "asyncio"
    assert "stop()" in caplog.text


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_stop_of_the_loop_in_the_last_step_does_not_change_the_outcome(loop: str) -> None:
    async def stops(error: Exception | None) -> str:
        await sleep(0.001)
        asyncio.get_running_loop().stop()
        if error is not None:
            raise error
        return "done"

    assert run(loop, stops, None) == "done"
    for error in (LookupError(), RuntimeError("it has stopped")):
        with pytest.raises(type(error)) as caught:
            run(loop, stops, error)
        assert caught.value is error


@each_loop
def test_loops_in_several_threads_do_not_meet(loop: str) -> None:
    for _ in range(3):
        in_thread(lambda: run(loop, use))

    async def beside() -> None:
        async with unix_pair() as (conn, peer):
            if loop == "trio":
                await trio.to_thread.run_sync(run, loop, use)
            else:
                await asyncio.to_thread(run, loop, use)
            await peer.send_all(b"mine")
            assert await conn.receive_some() == b"mine"

    run(loop, beside)


@each_loop
def test_loops_run_in_several_threads_at_once(loop: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        together = threading.Barrier(4, timeout=20)

        def work() -> str:
            together.wait()
            return [run(loop, use) for _ in range(5)][-1]

        assert {future.result() for future in [threads.submit(work) for _ in range(4)]} == {
            "trio" if loop == "trio" else "asyncio"
        }


@each_asyncio
def test_a_loop_may_run_again_and_keeps_its_connections(new_loop: NewLoop) -> None:
    loop = new_loop()
    left, right = loop.run_until_complete(open_pair())
    loop.run_until_complete(left.send_all(b"first"))
    assert loop.run_until_complete(right.receive_some()) == b"first"

    async def set_deadline() -> None:
        right.set_read_timeout(0.005)

    async def fails() -> None:
        with pytest.raises(DeadlineExceeded):
            await right.receive_some()

    loop.run_until_complete(set_deadline())
    loop.run_until_complete(fails())
    loop.run_until_complete(use())
    left.close()
    right.close()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def open_pair() -> tuple[Conn, Conn]:
    one, other = socket.socketpair()
    return Conn.from_socket(one), Conn.from_socket(other)


@each_asyncio
def test_a_loop_that_is_only_closed_leaves_nothing(new_loop: NewLoop) -> None:
    loop = new_loop()
    assert loop.run_until_complete(use()) == "asyncio"
    assert [owner for owner in inherited() if owner.is_open()]
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    loop.close()
    del loop
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < before  # noqa: PTH208
    assert not [owner for owner in inherited() if owner.is_open()]


@each_asyncio
def test_connections_can_be_closed_after_their_loop(new_loop: NewLoop) -> None:
    loop = new_loop()
    left, right = loop.run_until_complete(open_pair())
    loop.close()
    left.close()
    right.close()
    del loop, left, right
    gc.collect()


class HangingLookUp:
    """A look-up of a name that has no task of its own, and does not end."""

    def __init__(self, *_: object) -> None:
        self.is_over = False

    async def run(self, wait: Callable[[], Awaitable[object]]) -> None:
        await wait()


@pytest.mark.parametrize("queue", ["heap4", "wheel"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop, SteppedLoop])
def test_what_a_task_waits_for_can_be_closed_after_its_loop(
    new_loop: NewLoop, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait() -> tuple[Conn, Conn, Listener, PacketConn]:
        conn, peer = await open_pair()
        listener = await open_unix_listener(tmp_path / "s")
        packets = await open_udp("127.0.0.1")
        conn.set_deadline(current_time() + 3600)
        listener.set_deadline(current_time() + 1800)
        tasks.extend(map(asyncio.ensure_future, (conn.receive_some(), conn.send_all(bytes(2**22)), listener.accept())))
        tasks.append(asyncio.ensure_future(packets.send_to(b"x", ("name.example", 9))))
        await asyncio.sleep(0.001)
        return conn, peer, listener, packets

    monkeypatch.setenv("DEADLINED_QUEUE", queue)
    monkeypatch.setattr(datagram, "LookUp", HangingLookUp)
    tasks: list[asyncio.Future[object]] = []
    loop = new_loop()
    opened = loop.run_until_complete(wait())
    loop.close()
    for end in opened:
        end.close()
        assert end.socket.fileno() == -1
    assert not (tmp_path / "s").exists()
    for task in tasks:
        # asyncio logs that it was destroyed while it waited
        task._log_destroy_pending = False  # type: ignore[attr-defined]


@each_loop
def test_a_connection_that_outlives_its_run_is_closed(loop: str) -> None:
    async def keep() -> None:
        kept.extend(await open_pair())

    async def read() -> None:
        await kept[0].receive_some()

    kept: list[Conn] = []
    run(loop, keep)
    with pytest.raises(OSError, match="closed"):
        run(loop, read)
    for conn in kept:
        conn.close()


@each_loop
def test_a_forked_child_has_an_event_loop_of_its_own(loop: str) -> None:
    async def parent() -> None:
        async with unix_pair() as (conn, peer):
            conn.set_read_timeout(60)

            def child() -> None:
                if loop != "trio":
                    assert run(loop, use) == "asyncio"

            assert exit_status_of(child) == 0
            await peer.send_all(b"unharmed")
            assert await conn.receive_some() == b"unharmed"
            conn.set_read_timeout(0.001)
            with pytest.raises(DeadlineExceeded):
                await conn.receive_some()

    run(loop, parent)


# what callbacks keep, and what ends a loop

_variable: contextvars.ContextVar[object] = contextvars.ContextVar("first user")


class Token:
    """Something whose life can be observed."""


@on_each_loop
async def test_the_pump_does_not_keep_the_variables_of_its_first_user(loop: Loop) -> None:
    async def first() -> Any:
        token = Token()
        _variable.set(token)
        async with unix_pair() as (conn, _):
            conn.set_read_deadline(loop.after(1))
            with pytest.raises(DeadlineExceeded):
                await conn.receive_some()
            await sleep(loop.seconds(1))
            timer = Timer(loop.seconds(1))
            await timer.wait()
            # the alarm that this sets stays when the connection is gone
            conn.set_read_deadline(current_time() + 3600)
        return weakref.ref(token)

    async with loop.tasks() as tasks:
        running = tasks.start(first)
        kept = await running.succeeds()
        del running
    # a task keeps its variables
    del tasks
    await loop.step()
    gc.collect()
    assert kept() is None
    assert statistics() is not None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@each_asyncio
def test_an_interrupted_callback_stops_no_later_deadline(new_loop: NewLoop, kind: type[BaseException]) -> None:
    def interrupt() -> None:
        raise kind

    async def main() -> None:
        after_func(0.001, interrupt)
        await sleep(20)

    loop = new_loop()
    task = loop.create_task(main())
    with pytest.raises(kind):
        loop.run_until_complete(task)
    task.cancel()
    # the program cleans up: with a timer alone, of which no event reminds the poller, and over the network
    loop.run_until_complete(asyncio.wait_for(sleep(0.001), 5))
    assert loop.run_until_complete(use()) == "asyncio"
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@each_loop
def test_an_async_generator_cleans_up_over_the_network_at_the_end(loop: str) -> None:
    ends: list[bytes] = []

    async def generate() -> AsyncIterator[int]:
        left, right = await open_pair()
        try:
            while True:
                yield 1
        finally:
            if loop != "trio":
                # trio closes generators after the pump, which is a task
                await sleep(0.001)
                await left.send_all(b"goodbye")
                right.set_read_timeout(20)
                ends.append(await right.receive_some())
            left.close()
            right.close()

    async def main() -> None:
        generators = [generate() for _ in range(5)]
        for generator in generators:
            await anext(generator)
        kept.extend(generators)

    kept: list[Any] = []
    run(loop, main)
    assert ends == ([] if loop == "trio" else [b"goodbye"] * 5)


@on_asyncio
async def test_debug_mode_works(loop: Loop) -> None:
    asyncio.get_running_loop().set_debug(True)
    assert await use_in(loop) == "asyncio"
    asyncio.get_running_loop().set_debug(False)


async def use_in(loop: Loop) -> str:
    async with unix_pair() as (conn, _), loop.tasks() as tasks:
        reading = tasks.start(conn.receive_some)
        await loop.settle()
        for task in asyncio.all_tasks():
            assert repr(task)
            task.get_stack()
        reading.cancel()
        await reading.wait()
    return current_host().library


@on_asyncio
async def test_operations_are_coroutines_that_asyncio_takes(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), asyncio.TaskGroup() as group:
        reading = group.create_task(conn.receive_some())
        group.create_task(peer.send_all(b"x"))
        group.create_task(sleep(0))
        assert await asyncio.wait_for(reading, 20) == b"x"
        done = await asyncio.gather(conn.receive_some(), peer.send_all(b"y"), Timer(0).wait())
        assert done[0] == b"y"


# Ctrl-C

INTERRUPTED = """
import signal, sys, os
from deadlined import Timer, after_func, open_tcp_listeners, open_tcp_stream, sleep
from deadlined.http import HttpServer
from deadlined.runtime import run

async def in_a_wait():
    try:
        after_func(0.05, signal.raise_signal, signal.SIGINT)
        await sleep(30)
    finally:
        print("cleaned up", flush=True)

async def in_a_receive():
    (listener,) = await open_tcp_listeners(0, host="127.0.0.1")
    async with listener, await open_tcp_stream(*listener.socket.getsockname()) as conn:
        try:
            after_func(0.05, signal.raise_signal, signal.SIGINT)
            await conn.receive_some()
        finally:
            print("cleaned up", flush=True)

async def in_a_handler():
    async def handler(exchange):
        try:
            after_func(0.05, signal.raise_signal, signal.SIGINT)
            await sleep(30)
        finally:
            print("cleaned up", flush=True)

    (listener,) = await open_tcp_listeners(0, host="127.0.0.1")
    conn = await open_tcp_stream(*listener.socket.getsockname())
    await conn.send_all(b"GET / HTTP/1.1\\r\\nhost: a\\r\\n\\r\\n")
    await HttpServer(handler).serve([listener])

async def in_the_middle_of_a_handler():
    async def handler(exchange):
        try:
            signal.raise_signal(signal.SIGINT)
            await sleep(30)
        finally:
            print("cleaned up", flush=True)

    (listener,) = await open_tcp_listeners(0, host="127.0.0.1")
    conn = await open_tcp_stream(*listener.socket.getsockname())
    await conn.send_all(b"GET / HTTP/1.1\\r\\nhost: a\\r\\n\\r\\n")
    await HttpServer(handler).serve([listener])

try:
    run(sys.argv[1], globals()[sys.argv[2]])
except* KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@each_loop
@pytest.mark.parametrize("where", ["in_a_wait", "in_a_receive", "in_a_handler", "in_the_middle_of_a_handler"])
def test_ctrl_c_ends_a_run_in_order(loop: str, where: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", str(script), loop, where],
        capture_output=True,
        text=True,
        timeout=30,
        env=environment,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.stdout == "cleaned up\ninterrupted\n", done.stderr
    assert done.returncode == 0
    assert "Traceback" not in done.stderr, done.stderr


def test_two_clocks_agree() -> None:
    async def read() -> float:
        return current_time()

    first, second = run("asyncio", read), run("uvloop", read)
    assert 0 <= second - first < 20


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_task_that_has_ended_is_not_registered_again(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A debug build of Python 3.14 and later would abort."""
    registered: list[Any] = []
    monkeypatch.setattr("deadlined.runtime.on_asyncio.running.show", registered.append)

    async def nothing() -> None:
        pass

    run(loop, nothing)
    assert registered == []
