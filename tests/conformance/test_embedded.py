"""An application that a program serves in its own event loop: its lifespan, and what the program sees."""

from __future__ import annotations

import gc
import logging
import signal
import ssl
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deadlined import (
    open_tcp_listeners,
    open_tls_stream,
    open_unix_stream,
)
from deadlined.asgi import AsgiServer, LifespanFailed, serve
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Limits, Timeouts
from deadlined.runtime import LOOPS, Event, run
from tests.support.conformance import Loop, on_each_loop
from tests.support.embedded import GET, App, ask, begin, body, everything, say, unable
from tests.support.net import LOCALHOST, SERVER_NAME, certificates

# the order of its life


@on_each_loop
async def test_requests_come_after_the_startup_and_before_the_shutdown(loop: Loop) -> None:
    app = App()
    async with AsgiServer(app, port=0) as server:
        assert app.events == ["startup"]
        assert server.addresses == ((LOCALHOST, server.port),)
        assert body(await ask(server.port)) == b"hello"
        assert app.scope["state"] == {"shop": "open"}
        assert server.http.statistics().requests == 1
    assert app.events == ["startup", "response", "shutdown"]


@on_each_loop
async def test_a_client_that_comes_during_the_startup_is_answered_after_it(loop: Loop) -> None:
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    ready = Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await ready.wait()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await say(send, b"after" if ready.is_set() else b"before")

    async with loop.tasks() as tasks:
        serving = tasks.start(partial(serve, app, listeners=[listener]))
        asking = tasks.start(ask, listener.socket.getsockname()[1])
        await loop.sleep(1)
        assert asking.pending
        ready.set()
        assert body(await asking.succeeds()) == b"after"
        serving.cancel()
        await serving.wait()


@on_each_loop
async def test_an_application_without_a_lifespan_is_served(loop: Loop) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        await say(send, b"hello")

    async with AsgiServer(app, port=0) as server:
        assert body(await ask(server.port)) == b"hello"


@on_each_loop
async def test_one_whose_lifespan_is_on_must_start_and_one_whose_is_off_is_told_nothing(loop: Loop) -> None:
    app = App()

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise LookupError("no database")

    with pytest.raises(LifespanFailed, match="no database"):
        async with AsgiServer(broken, port=0, lifespan="on"):
            pytest.fail("it was served")
    async with AsgiServer(app, port=0, lifespan="off") as server:
        assert body(await ask(server.port)) == b"hello"
    assert app.events == ["response"]


@on_each_loop
async def test_an_application_that_raises_answers_500_and_goes_on(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raise LookupError("lost")

    async with AsgiServer(app, port=0) as server:
        for _ in range(2):
            assert (await ask(server.port)).startswith(b"HTTP/1.1 500 ")
    assert caplog.text.count("LookupError: lost") == 2


@on_each_loop
async def test_a_startup_that_fails_is_an_error_that_says_why_and_leaves_nothing(loop: Loop) -> None:
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    server = AsgiServer(unable, listeners=[listener])
    with pytest.raises(LifespanFailed, match=r"^no database$"):
        await server.__aenter__()
    assert listener.socket.fileno() == -1
    with pytest.raises(LifespanFailed, match=r"^no database$"):
        await serve(unable, port=0)


@on_each_loop
async def test_a_startup_can_be_cancelled(loop: Loop) -> None:
    ended: list[str] = []
    begun = Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        try:
            await loop.forever()
        finally:
            ended.append("cancelled")

    async with loop.tasks() as tasks:
        serving, _ = begin(tasks, app)
        await begun.wait()
        serving.cancel()
        await serving.wait()
        assert serving.cancelled
        assert ended == ["cancelled"]


@on_each_loop
async def test_a_cancellation_at_any_step_ends_it_in_order(loop: Loop) -> None:
    """None of them is lost, hangs, or leaves an application that has started without its shutdown."""
    async with loop.tasks() as tasks:
        for steps in range(40):
            app = App()
            (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
            serving = tasks.start(partial(serve, app, listeners=[listener]))
            for _ in range(steps):
                await loop.step()
            serving.cancel()
            await serving.wait()
            # it may not have begun
            listener.close()
            assert serving.cancelled, steps
            assert app.events in ([], ["startup", "shutdown"]), steps
    assert app.events == ["startup", "shutdown"]


@on_each_loop
async def test_a_cancellation_in_the_step_in_which_the_startup_is_complete_shuts_it_down(loop: Loop) -> None:
    events: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        serving.cancel()
        try:
            events.append((await receive())["type"])
        finally:
            events.append("ended")

    async with loop.tasks() as tasks:
        # trio runs the tasks of a turn in an order that varies
        for _ in range(20):
            serving, _ = begin(tasks, app)
            await serving.wait()
            assert serving.cancelled
            assert events == ["lifespan.shutdown", "ended"]
            events.clear()


# where it listens


@on_each_loop
async def test_two_servers_in_one_loop_end_each_by_itself(loop: Loop) -> None:
    one, other = App(), App()
    async with AsgiServer(one, port=0) as first:
        async with AsgiServer(other, port=0) as second:
            assert first.port != second.port
            assert body(await ask(first.port)) == body(await ask(second.port)) == b"hello"
        assert (one.events[-1], other.events[-1]) == ("response", "shutdown")
        assert body(await ask(first.port)) == b"hello"


@on_each_loop
async def test_the_same_port_is_served_twice_in_a_row(loop: Loop) -> None:
    port = 0
    for _ in range(2):
        async with AsgiServer(App(), port=port) as server:
            port = server.port
            assert body(await ask(port)) == b"hello"


@pytest.mark.parametrize("loop", LOOPS)
def test_it_runs_in_a_thread_with_an_event_loop_of_its_own(loop: str) -> None:
    served: list[bytes] = []

    async def main() -> None:
        async with AsgiServer(App(), port=0) as server:
            served.append(body(await ask(server.port)))

    for _ in range(2):
        thread = threading.Thread(target=run, args=(loop, main))
        thread.start()
        thread.join()
    assert served == [b"hello"] * 2


@on_each_loop
async def test_it_listens_on_a_unix_socket_and_removes_its_file(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    async with AsgiServer(App(), uds=path) as server:
        assert server.addresses == ((str(path), None),)
        with pytest.raises(RuntimeError, match="no TCP port"):
            _ = server.port
        async with await open_unix_stream(path) as conn:
            await conn.send_all(GET)
            assert body(await everything(conn)) == b"hello"
    assert not path.exists()


@on_each_loop
async def test_it_speaks_tls(loop: Loop) -> None:
    context: ssl.SSLContext = certificates().server
    app = App()
    async with AsgiServer(app, port=0, ssl_context=context) as server:
        conn = await open_tls_stream(
            LOCALHOST, server.port, ssl_context=certificates().client, server_hostname=SERVER_NAME
        )
        async with conn:
            await conn.send_all(GET)
            assert body(await everything(conn)) == b"hello"
    assert app.scope["scheme"] == "https"


@on_each_loop
async def test_a_port_that_is_taken_is_an_error_and_the_application_does_not_start(loop: Loop) -> None:
    app = App()
    async with AsgiServer(App(), port=0) as server:
        with pytest.raises(OSError, match="in use"):
            await serve(app, port=server.port)
    assert app.events == []


@on_each_loop
async def test_its_options_are_those_of_the_handler_and_the_server(loop: Loop) -> None:
    app = App()
    options: dict[str, Any] = {"root_path": "/shop", "limits": Limits(max_head=200)}
    options |= {"trusted_proxies": [LOCALHOST], "forwarded_fields": "x-forwarded"}
    async with AsgiServer(app, port=0, **options) as server:
        request = GET.replace(b"\r\n\r\n", b"\r\nforwarded: for=192.0.2.6\r\nx-forwarded-for: 192.0.2.7\r\n\r\n")
        assert body(await ask(server.port, request)) == b"hello"
        assert (app.scope["root_path"], app.scope["client"][0]) == ("/shop", "192.0.2.7")
        assert (await ask(server.port, GET.replace(b"host", b"x: " + b"x" * 200 + b"\r\nhost"))).split()[1] == b"431"


# what is left alone, and what is refused


@on_each_loop
async def test_a_clients_deadline_passes_while_its_request_waits_for_its_turn(loop: Loop) -> None:
    app = App(holds=True)
    options: Any = {"limits": Limits(max_running=1), "trust_deadline_headers": True}
    async with loop.tasks() as tasks, AsgiServer(app, port=0, **options) as server:
        first = tasks.start(ask, server.port)
        await app.came.wait()
        late = await ask(server.port, GET.replace(b"host", b"request-timeout: 0.5\r\nhost"))
        assert late.startswith(b"HTTP/1.1 504 ")
        app.release.set()
        assert body(await first.succeeds()) == b"hello"


@on_each_loop
async def test_signals_streams_logging_and_the_garbage_collector_are_left_alone(loop: Loop) -> None:
    def state() -> object:
        signals = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
        root = logging.getLogger()
        return signals, sys.stdout, sys.stderr, list(root.handlers), root.level, gc.get_threshold(), gc.isenabled()

    before = state()
    async with AsgiServer(App(), port=0) as server:
        await ask(server.port)
        assert state() == before
    assert state() == before


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"prot": 0}, TypeError, "no option 'prot': choose of host, port"),
    ({"port": 0, "uds": "x.sock"}, ValueError, "three ways"),
    ({"listeners": []}, ValueError, "listeners is empty"),
    ({"listeners": [3]}, TypeError, r"listeners has a int: Listener\.from_socket"),
    ({"port": 65536}, ValueError, "port must be from 0 to 65535"),
    ({"lifespan": "yes"}, ValueError, "lifespan 'yes': it is one of auto, on, off"),
    ({"root_path": "shop/"}, ValueError, "'shop/'"),
    ({"trusted_proxies": ["*"]}, ValueError, r"'\*' is not a proxy"),
    ({"trusted_proxies": "10.0.0.1"}, TypeError, r"trusted_proxies is several: write \['10\.0\.0\.1'\]"),
    ({"trusted_proxies": ["unix"], "forwarded_fields": "x"}, ValueError, "'x' is not known: choose one of both"),
    ({"forwarded_fields": "forwarded"}, ValueError, "forwarded_fields needs trusted_proxies"),
    ({"parser": "yacc"}, ValueError, "yacc"),
    ({"timeouts": Timeouts(drain=float("inf"))}, ValueError, r"timeouts\.drain is inf"),
    ({"shutdown": Event()}, TypeError, r"event\.wait"),
]


@pytest.mark.parametrize(("options", "kind", "says"), WRONG, ids=[next(iter(options)) for options, _, _ in WRONG])
def test_wrong_options_are_errors_before_the_application_starts(
    options: dict[str, Any], kind: type[Exception], says: str
) -> None:
    app = App()
    with pytest.raises(kind, match=says):
        run("asyncio", partial(serve, app, **options))
    assert app.events == []


@pytest.mark.parametrize("given", ["shop:app", None, 5])
def test_what_is_no_application_is_told_at_once(given: Any) -> None:
    with pytest.raises(TypeError, match=f"needs an ASGI application, not {given!r}: import it"):
        AsgiServer(given)


@on_each_loop
async def test_one_object_serves_once(loop: Loop) -> None:
    server = AsgiServer(App(), port=0)
    for use in (lambda: server.http, lambda: server.port, server.shutdown):
        with pytest.raises(RuntimeError, match="has not begun"):
            use()
    async with server:
        pass
    with pytest.raises(RuntimeError, match="serves once"):
        await server.__aenter__()
