"""The examples do what their docstrings promise: each is run as its reader would run it, and its times on a virtual
clock, trio's or one of asyncio."""

from __future__ import annotations

import asyncio
import http.client
import importlib.util
import os
import re
import selectors
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import httpx
import pytest
import trio
from trio.testing import MockClock

from deadlined import Conn, current_time
from deadlined.asgi import AsgiServer
from tests.support.net import Attempt, certificates, full_listener, tcp_pair

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"

# seconds; for what must happen, and never waited for in full
PATIENCE = 30.0

T = TypeVar("T")


def load(name: str) -> Any:
    """An example as a module; untyped, for it is no part of any package."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ask(port: int, method: str = "GET", body: str | None = None) -> tuple[int, str]:
    """Status and text of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, "/", body)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@contextmanager
def started(name: str, *arguments: str, first: str = "") -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """An example as a program on a free port, which says `first` before it tells the port: that port, and the
    process."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), "--port", "0", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True)
    # a program that says nothing must not hold up the tests
    guard = threading.Timer(PATIENCE, process.kill)
    guard.start()
    try:
        assert process.stdout is not None
        assert not first or process.stdout.readline() == first
        found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found is not None, "the example does not say where it listens"
        yield int(found[1]), process
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), "PATH": str(Path(shutil.which("openssl") or "/usr/bin/openssl").parent)}


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def ended(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example until it ends by itself."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


class JumpingSelector(selectors.DefaultSelector):
    """A selector that never waits for a time: the time comes at once, if no descriptor is ready."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(min(timeout, 0.0) if timeout is not None else None)
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """Asyncio's event loop on a virtual clock, which jumps to the next timer when nothing else can happen."""

    def __init__(self) -> None:
        self._selector_that_jumps = JumpingSelector()
        super().__init__(self._selector_that_jumps)

    def time(self) -> float:
        return self._selector_that_jumps.now

    async def shutdown_default_executor(self, *_: object) -> None:
        """Wait for the threads without a time limit, to which the clock would jump; Python 3.12 gives one."""
        await asyncio.SelectorEventLoop.shutdown_default_executor(self)


def on_asyncio(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on asyncio, in virtual time."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)


def test_every_example_is_tested_here() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    on_trio = {"echo_idle", "line_total", "asgi_extend", "embed_trio", "ticker", "tls_server"}
    on_asyncio = {"echo_asyncio", "batches_asyncio", "asgi_events", "embed_asyncio"}
    assert names == on_trio | on_asyncio | {"timer_thread", "chat"}


def test_the_table_says_of_each_example_whether_it_needs_asyncio() -> None:
    rows = dict(re.findall(r"^\| \[(\w+)\.py\].*\| ([^|]+) \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    needs = {path.stem: "\nimport asyncio\n" in path.read_text() for path in EXAMPLES.glob("*.py")}
    assert {name: where.startswith("asyncio") for name, where in rows.items()} == needs


# the echo server


def test_echo_idle_echoes_and_hangs_up_on_the_silent() -> None:
    with started("echo_idle", "--idle", "1") as (port, process), dial(port) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        assert client.recv(100) == b""
        assert "read deadline passed" in said(process)


async def test_echo_idle_moves_its_deadline_with_every_message(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with tcp_pair() as (client, server):
        echo = Attempt(nursery, lambda: load("echo_idle").echo(server, 5.0))
        for _ in range(3):
            await trio.sleep(4.0)
            await client.send_all(b"x")
            assert await client.receive_some() == b"x"
        await echo.done()
        assert (echo.error, echo.ended) == (None, 12.0 + 5.0)


# the line protocol


def test_line_total_answers_lines_and_cuts_an_unfinished_one() -> None:
    with started("line_total", "--line", "0.2") as (port, process), dial(port) as client:
        client.sendall(b"one\ntwo\nthr")
        received = b""
        while data := client.recv(100):
            received += data
        assert received == b"ONE\nTWO\n"
        assert "read deadline passed" in said(process)


async def test_line_total_answers_many_lines_that_come_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with tcp_pair() as (client, server):
        talk = Attempt(nursery, lambda: load("line_total").talk(server, 5.0))
        await client.send_all(b"x\n" * 3000)
        received = b""
        with trio.move_on_after(4.0):
            while len(received) < 6000:
                received += await client.receive_some()
        assert received == b"X\n" * 3000
        await talk.done()
        assert (talk.error, talk.ended) == (None, 5.0)


@pytest.mark.parametrize(("length", "answered"), [(4095, True), (4096, False), (10_000, False)])
async def test_line_total_refuses_a_line_that_is_too_long(
    length: int, answered: bool, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with tcp_pair() as (client, server):
        talk = Attempt(nursery, lambda: load("line_total").talk(server, 5.0))
        await client.send_all(b"x" * length + b"\n")
        if answered:
            assert await client.receive_some() == b"X" * length + b"\n"
        await talk.done()
        assert (talk.error, talk.ended) == (None, 5.0 if answered else 0.0)


async def trickle(conn: Conn) -> None:
    """A byte a second, for as long as they are taken."""
    while True:
        await trio.sleep(1.0)
        await conn.send_all(b"x")


async def test_line_total_is_not_extended_by_trickling(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with tcp_pair() as (client, server):
        talk = Attempt(nursery, lambda: load("line_total").talk(server, 5.5))
        await client.send_all(b"first\n")
        assert await client.receive_some() == b"FIRST\n"
        nursery.start_soon(trickle, client)
        await talk.done()
        assert (talk.error, talk.ended) == (None, 5.5)
        nursery.cancel_scope.cancel()


async def test_line_total_gives_every_line_its_own_time(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with tcp_pair() as (client, server):
        talk = Attempt(nursery, lambda: load("line_total").talk(server, 5.0))
        for _ in range(3):
            await trio.sleep(4.0)
            await client.send_all(b"line\n")
            assert await client.receive_some() == b"LINE\n"
        await talk.done()
        assert talk.ended == 12.0 + 5.0


# the heartbeat

# beat 4 has waited for the slow worker, 5 and 6 were dropped, 7 comes in time
HEARTBEAT = [
    "beat 1",
    "beat 2",
    "beat 3",
    "watchdog: no beat for 1.5 periods",
    "beat 4",
    "skipped 2",
    "beat 7",
    "beat 8",
]


async def test_ticker_skips_what_it_misses_and_the_watchdog_notices(autojump_clock: MockClock) -> None:
    said: list[str] = []
    await load("ticker").heartbeat(0.5, 8, said.append)
    assert said == HEARTBEAT
    assert trio.current_time() == 8 * 0.5


def test_ticker_runs_as_a_program() -> None:
    result = ended("ticker", "--period", "0.01", "--beats", "1")
    assert (result.returncode, result.stderr) == (0, "")
    assert "beat 1" in result.stdout.splitlines()


# the echo server on asyncio, and its client


def test_echo_asyncio_answers_its_own_client() -> None:
    with started("echo_asyncio") as (port, _):
        result = ended("echo_asyncio", "--port", str(port), "--say", "hello")
        assert (result.returncode, result.stderr, result.stdout) == (0, "", "hello\n")


def test_echo_asyncio_hangs_up_on_the_silent() -> None:
    with started("echo_asyncio", "--idle", "1") as (port, process), dial(port) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        assert client.recv(100) == b""
        assert "read deadline passed" in said(process)


def test_echo_asyncio_moves_its_deadline_with_every_message() -> None:
    async def main() -> float:
        left, right = map(Conn.from_socket, socket.socketpair())
        async with left, right, asyncio.TaskGroup() as tasks:
            echo = tasks.create_task(load("echo_asyncio").echo(right, 5.0))
            for _ in range(3):
                await asyncio.sleep(4.0)
                await left.send_all(b"x")
                assert await left.receive_some() == b"x"
            await echo
        return current_time()

    assert on_asyncio(main()) == pytest.approx(12.0 + 5.0)


def ask_in_vain(port: int, within: str) -> str:
    """Run the client with a server that does not answer, and return the error that it ends with."""
    result = ended("echo_asyncio", "--port", str(port), "--say", "hello", "--within", within)
    assert (result.returncode, result.stdout) == (1, "")
    return result.stderr


def test_the_client_of_echo_asyncio_waits_for_an_answer_until_its_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # long enough to connect on a busy machine
        assert ask_in_vain(silent.getsockname()[1], "2") == "no answer within 2 s: it was still to read\n"


def test_the_deadline_of_echo_asyncio_includes_the_connection() -> None:
    with full_listener() as port:
        assert ask_in_vain(port, "0.2") == "no answer within 0.2 s: it was still to connect\n"


def test_the_client_of_echo_asyncio_says_that_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "Connection refused" in ask_in_vain(port, "30")


# batches, a heartbeat and a watchdog on asyncio

BATCHES = [
    "wrote [1, 2, 3]",
    "1 s: 3 written",
    "2 s: 3 written",
    "watchdog: nothing for 2 s",
    "3 s: 3 written",
    "wrote [4]",
    "4 s: 4 written",
    "time is up",
]


def test_batches_asyncio_writes_reports_and_notices_a_pause() -> None:
    async def main() -> tuple[list[str], float]:
        said: list[str] = []
        await load("batches_asyncio").run(1.0, said.append)
        ended = current_time()
        # nothing is left that could still say something
        await asyncio.sleep(60.0)
        return said, ended

    said, when = on_asyncio(main())
    assert said == BATCHES
    assert when == pytest.approx(4.5)


def test_batches_asyncio_runs_as_a_program() -> None:
    result = ended("batches_asyncio", "--second", "0.02")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "time is up"


# the application


def test_asgi_extend_serves() -> None:
    with started("asgi_extend") as (port, _):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("GET", "/deadline")
            response = connection.getresponse()
            assert response.status == 200
            left = float(response.read().split()[0])
            assert 0.0 < left <= 1.0
        finally:
            connection.close()


@pytest.mark.parametrize(("path", "status", "seconds"), [("/quick", b"504", 1.0), ("/report", b"200", 2.0)])
async def test_asgi_extend_gets_the_time_that_it_asks_for(
    path: str, status: bytes, seconds: float, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    port = await nursery.start(load("asgi_extend").serve, 0)
    async with await trio.open_tcp_stream("127.0.0.1", port) as client:
        began = trio.current_time()
        await client.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = await client.receive_some()
        assert answer.split()[1] == status
        assert trio.current_time() - began == pytest.approx(seconds)
    nursery.cancel_scope.cancel()


# servers within a program


def test_embed_trio_counts_what_was_handed_in_before_it_ends() -> None:
    with started("embed_trio", first="the application has started\n") as (port, process):
        for text in ("three short words", "and two"):
            assert ask(port, "POST", text) == (202, "")
        process.send_signal(signal.SIGTERM)
        assert said(process) == "5 words were counted\n"
        assert process.wait(PATIENCE) == 0


def test_embed_trio_says_how_many_also_after_a_second_signal() -> None:
    with started("embed_trio", first="the application has started\n") as (port, process), dial(port) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\ntwo ")
        # it has begun once a later request is answered
        assert ask(port) == (200, "0 words\n")
        process.send_signal(signal.SIGTERM)
        wait_until_refused(port)
        process.send_signal(signal.SIGTERM)
        client.sendall(b"words")
        assert client.recv(1000).split()[1] == b"202"
        assert said(process) == "2 words were counted\n"


def wait_until_refused(port: int) -> None:
    """Wait until the server has begun to drain and accepts no connections."""
    with suppress(ConnectionError):
        while True:
            dial(port).close()


async def test_embed_trio_counts_no_half_of_a_text() -> None:
    example = load("embed_trio")
    counter = example.Counter()
    messages: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": b"half a text", "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(message: dict[str, Any]) -> None:
        pytest.fail("an answer to half a request")

    await example.App(counter)({"type": "http", "method": "POST"}, receive, send)
    counter.texts.close()
    await counter.run()
    assert counter.words == 0


def test_embed_asyncio_serves_a_site_and_its_operator() -> None:
    with started("embed_asyncio", first="the site has started\n") as (port, process):
        assert ask(port) == (200, "up for 0 seconds\n")
        process.send_signal(signal.SIGTERM)
        assert said(process) == "the site has ended\n"
        assert process.wait(PATIENCE) == 0


def test_the_operator_of_embed_asyncio_sees_the_site() -> None:
    example = load("embed_asyncio")

    async def main() -> object:
        site = AsgiServer(example.site(example.Clock()), port=0)
        page = AsgiServer(example.operators_page(site), port=0)
        async with page, site, httpx.AsyncClient(trust_env=False) as client:
            await client.get(f"http://127.0.0.1:{site.port}/")
            found: object = (await client.get(f"http://127.0.0.1:{page.port}/")).json()
            return found

    assert asyncio.run(main()) == {"open": 1, "requests": 1, "draining": False}


# the application that streams events


def test_asgi_events_ends_its_stream_when_the_server_drains() -> None:
    with started("asgi_events") as (port, process), dial(port) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b"event: count\ndata: 1\n\n" not in received:
            received += client.recv(1000)
        process.send_signal(signal.SIGTERM)
        # a stream that does not end by itself is reset after the drain's 30 seconds
        while data := client.recv(1000):
            received += data
        assert b"content-type: text/event-stream" in received
        assert re.search(rb"event: end\ndata: \d+\n\n\r\n0\r\n\r\n$", received)
        assert process.wait(PATIENCE) == 0


class Sent:
    """The `send` of an ASGI server that notes when each event was sent."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str]] = []

    async def __call__(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            self.events.append((current_time(), message["body"].decode().split()[1]))


async def nothing() -> dict[str, Any]:
    raise AssertionError("the application receives nothing")


@pytest.mark.parametrize(
    ("run", "ends"),
    [
        (lambda example, sent: example.stream(sent, asyncio.sleep(2.5)), [(2.5, "end")]),
        # a server without the extension: nothing ends the stream
        (lambda example, sent: asyncio.wait_for(example.app({"type": "http"}, nothing, sent), 2.75), []),
    ],
    ids=["drains", "other-server"],
)
def test_asgi_events_sends_an_event_per_second_and_the_last_one_at_once(
    run: Callable[[Any, Sent], Awaitable[None]], ends: list[tuple[float, str]]
) -> None:
    async def main() -> list[tuple[float, str]]:
        sent = Sent()
        try:
            await run(load("asgi_events"), sent)
        except TimeoutError:
            assert current_time() == 2.75
        return sent.events

    assert on_asyncio(main()) == [(0.0, "count"), (1.0, "count"), (2.0, "count"), *ends]


# TLS

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command is not installed")


@needs_openssl
def test_tls_server_makes_its_own_certificate_and_echoes() -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with started("tls_server") as (port, _), context.wrap_socket(dial(port)) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


@needs_openssl
def test_tls_server_uses_the_certificate_that_it_is_given(tmp_path: Path) -> None:
    certificate, key = load("tls_server").self_signed(tmp_path)
    context = ssl.create_default_context(cafile=str(certificate))
    with (
        started("tls_server", "--certfile", str(certificate), "--keyfile", str(key)) as (port, _),
        context.wrap_socket(dial(port), server_hostname="localhost") as client,
    ):
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


async def test_tls_server_cuts_whoever_does_not_shake_hands(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with tcp_pair() as (_, server):
        example = load("tls_server")
        echo = Attempt(nursery, lambda: example.echo(server, certificates().server))
        await echo.done()
        assert (echo.error, echo.ended) == (None, example.HANDSHAKE)


# timers without an event loop


def run_commands(commands: str, *arguments: str) -> list[str]:
    """What the example says of some commands."""
    program = [sys.executable, "-W", "error", str(EXAMPLES / "timer_thread.py"), *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    result = subprocess.run(
        program, input=commands, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert result.stderr == ""
    return result.stdout.splitlines()


def test_timer_thread_kills_the_command_that_takes_too_long_and_goes_on() -> None:
    lines = run_commands("sleep 60\ntrue\n", "--limit", "1")
    assert lines == ["sleep 60: killed after 1 s", "true: exit status 0"]


def test_timer_thread_tells_of_a_command_that_takes_a_while_and_lets_it_end() -> None:
    told, *rest = run_commands("sleep 0.5\nfalse\n", "--limit", "60", "--report", "0.3")
    assert re.fullmatch(r"sleep 0\.5: for \d+\.\d s now", told)
    assert rest == ["sleep 0.5: exit status 0", "false: exit status 1"]


def test_timer_thread_goes_on_after_lines_that_are_no_commands() -> None:
    lines = run_commands("\n  \n/no/such/command\necho 'unclosed\ntrue\n")
    assert lines == [
        "/no/such/command: cannot start: [Errno 2] No such file or directory: '/no/such/command'",
        "echo 'unclosed: cannot start: No closing quotation",
        "true: exit status 0",
    ]


def test_timer_thread_gives_its_commands_no_input() -> None:
    # longer than what Python reads at once
    long = "true " + "x" * 10_000
    assert run_commands(f"cat\n{long}\n") == ["cat: exit status 0", f"{long}: exit status 0"]
