"""Connected pairs, full buffers, listeners that fail, certificates, and operations in tasks of their own."""

from __future__ import annotations

import errno
import functools
import math
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Generic, TypeVar

import pytest
import trio
import trustme

from deadlined import Conn, DeadlineExceeded, Listener, current_time, open_tcp_listeners, open_tcp_stream
from deadlined.poll import Poller
from deadlined.runtime import current_host
from deadlined.timers.heap4 import Heap4

T = TypeVar("T")

INF = math.inf
HOUR = 3600.0
LOCALHOST = "127.0.0.1"
SERVER_NAME = "server.example"

Operation = Callable[[], Awaitable[object]]


def past() -> float:
    """Return the time five seconds ago, as Go's tests use it."""
    return trio.current_time() - 5.0


def after(seconds: float) -> float:
    """Return a deadline, seconds from now."""
    return trio.current_time() + seconds


def tcp_sockets() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a TCP connection."""
    with socket.create_server((LOCALHOST, 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        return client, listening.accept()[0]


def unix_sockets() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a unix stream."""
    return socket.socketpair()


@asynccontextmanager
async def tcp_pair() -> AsyncIterator[tuple[Conn, Conn]]:
    """Return the two ends of a TCP connection."""
    one, other = tcp_sockets()
    async with Conn.from_socket(one) as client, Conn.from_socket(other) as server:
        yield client, server


@asynccontextmanager
async def unix_pair() -> AsyncIterator[tuple[Conn, Conn]]:
    """Return the two ends of a unix stream."""
    one, other = unix_sockets()
    async with Conn.from_socket(one) as client, Conn.from_socket(other) as server:
        yield client, server


PairMaker = Callable[[], AbstractAsyncContextManager[tuple[Conn, Conn]]]

# decorates a test with a parameter `pair`: `async with pair() as (client, server)`
over_tcp_and_unix = pytest.mark.parametrize("pair", [tcp_pair, unix_pair], ids=["tcp", "unix"])


@asynccontextmanager
async def local_listener() -> AsyncIterator[tuple[Listener, int]]:
    """Give a TCP listener on the loopback interface, and its port."""
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    async with listener:
        yield listener, listener.socket.getsockname()[1]


@contextmanager
def full_listener() -> Iterator[int]:
    """Give the port of a TCP listener whose queue is full: connecting to it hangs."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((LOCALHOST, 0))
        listening.listen(0)
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


def forget_who_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let getsockopt(2) be that of macOS and OpenBSD, which do not know SO_ACCEPTCONN."""
    ask = socket.socket.getsockopt

    def getsockopt(self: socket.socket, level: int, option: int, *size: int) -> int | bytes:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        return ask(self, level, option, *size)

    monkeypatch.setattr(socket.socket, "getsockopt", getsockopt)


def refuse_when_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the unix sockets be those of macOS and the BSDs, which refuse a connection if the queue is full."""
    connect = socket.socket.connect

    def connect_or_be_refused(self: socket.socket, address: str) -> None:
        try:
            connect(self, address)
        except BlockingIOError as error:
            assert error.errno == errno.EAGAIN
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)) from None

    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(socket.socket, "connect", connect_or_be_refused)


needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")


async def clog(conn: Conn) -> int:
    """Fill the kernel's buffers until they take no more; return the number of bytes."""
    sent = refusals = 0
    # the kernel passes bytes on to the peer's buffer for a moment after it has refused some
    while refusals < 3:
        taken = conn.try_send(bytes(65536)) or conn.try_send(b"\0")
        refusals = 0 if taken else refusals + 1
        sent += taken
        await trio.lowlevel.checkpoint()
    return sent


async def receive_exactly(conn: Conn, size: int) -> bytes:
    """Return `size` bytes, or fewer if the peer ends first."""
    received = bytearray()
    while len(received) < size and (data := await conn.receive_some(size - len(received))):
        received += data
    return bytes(received)


async def fails_at_its_deadline(operation: Callable[[], Awaitable[object]]) -> DeadlineExceeded:
    """Run the operation, and return the DeadlineExceeded that it must raise."""
    with pytest.raises(DeadlineExceeded) as caught:
        await operation()
    assert isinstance(caught.value, TimeoutError)
    return caught.value


class Attempt(Generic[T]):
    """An operation in a task of its own, begun when it is made: whether it has ended, when, and how."""

    def __init__(self, nursery: trio.Nursery, operation: Callable[[], Awaitable[T]]) -> None:
        self.ended: float | None = None
        self.result: T | None = None
        self.error: Exception | None = None
        self._done = trio.Event()
        nursery.start_soon(self._run, operation)

    async def _run(self, operation: Callable[[], Awaitable[T]]) -> None:
        try:
            self.result = await operation()
        except Exception as error:  # kept for the test, which looks at it
            self.error = error
        finally:
            self.ended = trio.current_time()
            self._done.set()

    @property
    def pending(self) -> bool:
        return self.ended is None

    async def done(self) -> None:
        await self._done.wait()

    def raised(self, kind: type[Exception]) -> bool:
        """Return True if it ended with this error, False if with none. Raises any other error."""
        if self.error is not None and not isinstance(self.error, kind):
            raise self.error
        return self.error is not None


class _Steps(trio.abc.Instrument):
    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task = task
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self.task


async def count_sleeps(operation: Callable[[], Awaitable[object]]) -> int:
    """Return how many times the operation let other tasks run, by waiting or by a checkpoint."""
    steps = _Steps(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(steps)
    try:
        await operation()
    finally:
        trio.lowlevel.remove_instrument(steps)
    return steps.count


def assert_heap_is_sound() -> None:
    """Check the timer heap of this run: in order, each entry at its index, no pending timer without an entry."""
    poller: Poller = current_host().poller
    heap = poller.timers._queue
    assert isinstance(heap, Heap4)
    keys, stored = heap._keys, heap._timers
    assert [timer.index for timer in stored] == list(range(len(stored)))
    assert [timer.key for timer in stored] == keys
    assert all(keys[(i - 1) // 4] <= keys[i] for i in range(1, len(keys)))
    assert all(timer.key <= timer.when for timer in stored)
    halves = [half for desc in poller._descs.values() for half in (desc.read, desc.write)]
    pending = [half for half in halves if half.pending]
    assert {id(timer) for timer in pending} <= {id(timer) for timer in stored}
    assert len(stored) == len(pending) + poller.timers.zombies


class Certificates:
    """A TLS server's certificate and a client that trusts its issuer."""

    def __init__(self) -> None:
        authority = trustme.CA()
        self.trust = authority.configure_trust
        self.client = ssl.create_default_context()
        self.trust(self.client)
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own = authority.issue_cert(SERVER_NAME)
        self.identify = own.configure_cert
        self.identify(self.server)
        # its key and certificate, and the certificate of its issuer
        self.pem = own.private_key_and_cert_chain_pem.bytes()
        self.issuer_pem = authority.cert_pem.bytes()

    def wrap(
        self, client: Conn, server: Conn, *, https_compatible: bool = False
    ) -> tuple[trio.SSLStream[Conn], trio.SSLStream[Conn]]:
        """Return TLS streams over both ends, before the handshake."""
        return (
            trio.SSLStream(client, self.client, server_hostname=SERVER_NAME, https_compatible=https_compatible),
            trio.SSLStream(server, self.server, server_side=True, https_compatible=https_compatible),
        )


@functools.cache
def certificates() -> Certificates:
    """Return the same certificates for every test, because making keys takes a while."""
    return Certificates()


def port_of(listener: Listener) -> int:
    port = listener.socket.getsockname()[1]
    assert isinstance(port, int)
    return port


# what accept(2) says when there is no room, and the waits in seconds that follow
SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM]
BACKOFF = [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]


class Troubled(socket.socket):
    """A listening socket whose first accepts fail with the given errors, and which notes the time of each."""

    def __init__(self, *troubles: int) -> None:
        super().__init__()
        self.bind((LOCALHOST, 0))
        self.listen()
        self.troubles = list(troubles)
        self.calls: list[float] = []

    def accept(self) -> tuple[socket.socket, object]:
        self.calls.append(current_time())
        if self.troubles:
            number = self.troubles.pop(0)
            raise OSError(number, os.strerror(number))
        return super().accept()

    async def connect_to_it(self) -> Conn:
        return await open_tcp_stream(*self.getsockname())
