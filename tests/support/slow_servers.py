"""Servers whose deadlines are exactly known, in a thread: what the load test's `check` must find."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """How a server treats its clients.

    `kind` of the deadline for heads, bodies and responses, and its `seconds` (and its `rate`, with min-rate, and with
    windows, in each of which so much must come); `end`: fin, rst or 408; `idle`: seconds between requests; `large`:
    bytes of a response's body; `status` of it; `raw`: in place of any response; `stall`: the number of a request at
    which the whole server stops for so many seconds; `delay`: seconds before each response; `closes`: after each
    response; `breaks`: the number of connections after which every response is `broken`; `drops`: the number of a
    connection's request that it closes upon without an answer.
    """

    kind: str = "none"
    seconds: float = 0.5
    rate: float = 500.0
    end: str = "fin"
    idle: float = math.inf
    large: int = 100
    status: str = "200 OK"
    fields: str = ""
    raw: bytes | None = None
    stall: tuple[int, float] | None = None
    delay: float = 0.0
    closes: bool = False
    breaks: float = math.inf
    broken: str = "500 Broken"
    drops: int = 0

    def until(self, began: float, last: float, received: int) -> float:
        """Return the moment of the end: of what began then, with these bytes since, the last at that time."""
        moments = {
            "none": math.inf,
            "absolute": began + self.seconds,
            "idle": last + self.seconds,
            "min-rate": began + self.seconds + received / self.rate,
            "windows": began + self.seconds * (received // (self.rate * self.seconds) + 1),
        }
        return moments[self.kind]


class SlowServer:
    """A server under a rule. `connections`: accepted so far; `requests`: answered so far."""

    def __init__(self, rule: Rule, port: int = 0) -> None:
        self.connections = 0
        self.requests = 0
        self.port = port
        self.accepted = threading.Condition()
        self._rule = rule
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def wait_for(self, connections: int) -> None:
        """Wait until so many were accepted."""
        with self.accepted:
            assert self.accepted.wait_for(lambda: self.connections >= connections, 30)

    def run(self, context: ssl.SSLContext | None, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=context, backlog=1000)
        )
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        # a few turns before: asyncio drops a connection, unclosed, if its server closes while it is being accepted; and
        # a few after: closing is put off to the next turn
        self._turn(5)
        server.close()
        for task in list(self._tasks):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._turn(5)
        self._loop.close()

    def _turn(self, times: int) -> None:
        for _ in range(times):
            self._loop.run_until_complete(asyncio.sleep(0))

    def stop(self) -> None:
        """Stop serving. It may have been stopped before."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._loop.stop)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with self.accepted:
            self.connections += 1
            self.accepted.notify_all()
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        except TimeoutError:
            self._end(writer)
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received, number = await self._until(reader, b"", b"\r\n\r\n"), 0
        while received:
            number += 1
            if number == self._rule.drops:
                return
            head, _, rest = received.partition(b"\r\n\r\n")
            if self._rule.raw is not None:
                writer.write(self._rule.raw)
                return
            if head.startswith(b"POST"):
                await self._until(reader, rest, None)
            await self._answer(reader, writer, b"websocket" in head)
            if self._rule.closes or b"connection: close" in head.lower():
                return
            if not rest:
                async with asyncio.timeout(self._rule.idle):
                    rest = await reader.read(65536)
            received = await self._until(reader, rest, b"\r\n\r\n") if rest else b""

    async def _until(self, reader: asyncio.StreamReader, received: bytes, mark: bytes | None) -> bytes:
        """Read until the mark, under the rule; b"" at the end. Bodies have no mark, and never end."""
        began = last = self._loop.time()
        while mark is None or mark not in received:
            async with asyncio.timeout_at(self._rule.until(began, last, len(received))):
                data = await reader.read(65536)
            if not data:
                return b""
            received += data
            last = self._loop.time()
        return received

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, websocket: bool) -> None:
        self.requests += 1
        if self._rule.stall and self.requests == self._rule.stall[0]:
            time.sleep(self._rule.stall[1])  # noqa: ASYNC251, the stall that must be seen
        if websocket and self._rule.fields == "websocket":
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            await self._ping(reader, writer)
            return
        await asyncio.sleep(self._rule.delay)
        fields = f"{self._rule.fields}\r\n" if ":" in self._rule.fields else ""
        fields += "Connection: close\r\n" if self._rule.closes else ""
        status = self._rule.status if self.connections <= self._rule.breaks else self._rule.broken
        head = f"HTTP/1.1 {status}\r\nContent-Length: {self._rule.large}\r\n{fields}\r\n"
        writer.write(head.encode() + b"x" * self._rule.large)
        async with asyncio.timeout(None if self._rule.kind == "none" else self._rule.seconds):
            await writer.drain()

    async def _ping(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ping all the time, and end a peer whose answers stop for longer than the rule allows."""
        while self._rule.kind != "none":
            writer.write(b"\x89\x02hi")
            async with asyncio.timeout(self._rule.seconds):
                await reader.readexactly(8)
            await asyncio.sleep(0.05)
        await reader.read()

    def _end(self, writer: asyncio.StreamWriter) -> None:
        if self._rule.end == "408":
            writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        elif self._rule.end == "rst":
            endpoint = writer.get_extra_info("socket")
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif writer.transport.get_write_buffer_size():
            # a close would wait until the client has read it all
            writer.transport.abort()


@contextmanager
def slow_server(rule: Rule, context: ssl.SSLContext | None = None, port: int = 0) -> Iterator[SlowServer]:
    """Serve under a rule until the block ends, on a free port unless one is given."""
    server, ready = SlowServer(rule, port), threading.Event()
    thread = threading.Thread(target=server.run, args=(context, ready))
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
