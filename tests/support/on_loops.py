"""A server in an event loop of this thread, and its clients in another thread: the same for each kind of loop."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import trio
import uvloop

from deadlined import open_tcp_listeners
from deadlined.asgi import App, AsgiHandler
from deadlined.asgi.handler import Send
from deadlined.http import HttpServer, Route, Timeouts
from deadlined.runtime import call_soon, current_host, run

# opens a pipe that libuv keeps until the process ends
uvloop.new_event_loop().close()

LOCALHOST = "127.0.0.1"

# seconds; for what must happen, and never waited for in full
PATIENCE = 20.0


def in_trio() -> bool:
    return trio.lowlevel.in_trio_task()


async def sleep(seconds: float) -> None:
    """Sleep in the event loop's own way, as applications do."""
    if in_trio():
        await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


async def sleep_forever() -> None:
    await sleep(3600)


async def answer(send: Send, body: bytes = b"fine") -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


class Site:
    """The server as its clients see it."""

    def __init__(self, port: int, server: HttpServer) -> None:
        self.port = port
        self.server = server

    def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of a response, on a connection of its own: (0, b"") if there is none, and a negative
        status if the response was cut."""
        with socket.create_connection((LOCALHOST, self.port), timeout=PATIENCE) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
            received = b""
            with suppress(ConnectionResetError):
                while data := client.recv(65536):
                    received += data
        return parsed(received)

    def status(self, path: str) -> int:
        return self.get(path)[0]


def parsed(received: bytes) -> tuple[int, bytes]:
    """Return status and body of all that a client has received, as `Site.get` does."""
    head, end, body = received.partition(b"\r\n\r\n")
    if not end:
        return 0, b""
    status = int(head.split(b" ")[1])
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    whole = len(body) == int(length[1]) if length else body.endswith(b"0\r\n\r\n")
    return (status if whole else -status), body


def serve_on(
    loop: str,
    app: App,
    clients: Callable[[Site], object],
    timeouts: Timeouts | None = None,
    cleanup: Any = None,
    routes: Sequence[Route] = (),
) -> None:
    """Serve `app` in a loop of this kind until `clients(site)` has returned in another thread, and drain.

    Fails if the server leaves a connection, a handler, an armed timer or a watched descriptor. `cleanup()` is called in
    the loop after the drain, for what the application has left on purpose.
    """
    errors: list[BaseException] = []

    async def main() -> None:
        (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
        server = HttpServer(AsgiHandler(app), timeouts=timeouts, routes=routes)
        site = Site(listener.socket.getsockname()[1], server)
        call = call_soon()
        thread = threading.Thread(target=_run, args=(clients, site, errors, lambda: call(server.shutdown)))
        thread.start()
        await server.serve([listener])
        thread.join()
        if cleanup is not None:
            cleanup()
        _assert_nothing_is_left(server)

    run(loop, main)
    gc.collect()
    if errors:
        raise errors[0]


def _run(clients: Callable[[Site], object], site: Site, errors: list[BaseException], end: Callable[[], object]) -> None:
    try:
        clients(site)
    except BaseException as error:
        errors.append(error)
    finally:
        end()


def _assert_nothing_is_left(server: HttpServer) -> None:
    assert (server.statistics().open, server.statistics().background) == (0, 0)
    poller = current_host().statistics().poller
    assert poller.descriptors == 0
    assert poller.timers.stored == poller.timers.zombies
