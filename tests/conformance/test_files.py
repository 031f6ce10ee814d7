"""Files as bodies of responses, by ASGI's `http.response.pathsend`: the client gets what was announced or sees that it
did not, nothing waits in the event loop, and no descriptor is left open."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import h11
import pytest

from deadlined import open_tls_stream
from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import App, Message, Receive, Scope, Send
from deadlined.http import Reason, ResponseError
from deadlined.http.files import PIECE, FileReader
from deadlined.http.heads import HOLD
from deadlined.runtime import Event, call_soon
from tests.support.conformance import SURELY, Loop, Tasks, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.http import GET, LAST_GET, Client
from tests.support.net import LOCALHOST, SERVER_NAME, certificates

# linger for no second: the end of the socket resets the connection
RESET = struct.pack("ii", 1, 0)

HEAD = GET.replace(b"GET", b"HEAD")
OLD = b"GET / HTTP/1.0\r\n\r\n"

# bytes that the kernel takes for a client that does not read, about
NARROW = 4096

# more than the kernel and the server hold of it
HUGE = 40 * PIECE

SIZES = [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7]


def content(size: int) -> bytes:
    return bytes(i % 251 for i in range(size))


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """Give the path of a small file, which must not be open at the end."""
    path = tmp_path / "file"
    path.write_bytes(content(3000))
    yield path
    await_closed(path)


def await_closed(path: Path) -> None:
    """Wait until a thread has closed the file."""
    limit = time.monotonic() + SURELY
    while opened(path):
        assert time.monotonic() < limit
        time.sleep(0.001)


def fill(path: Path, size: int) -> None:
    path.write_bytes(content(size))


def opened(path: Path) -> int:
    """Return how many descriptors of this process have the file open."""
    wanted = path.stat()
    count = 0
    for name in os.listdir("/dev/fd"):  # noqa: PTH208, numbers and no paths
        with suppress(OSError):
            count += os.path.samestat(os.fstat(int(name)), wanted)
    return count


def sending(path: object, length: int | None = None, errors: list[BaseException] | None = None) -> App:
    """Return an application that answers with the file, and notes what `send` raises."""
    fields = [] if length is None else [(b"content-length", b"%d" % length)]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        try:
            await send({"type": "http.response.pathsend", "path": path})
        except BaseException as error:
            if errors is not None:
                errors.append(error)
            raise

    return app


@asynccontextmanager
async def served(loop: Loop, app: App, **options: Any) -> AsyncIterator[tuple[Site, Tasks]]:
    async with site_of(loop, AsgiHandler(app, pathsend=True), **options) as (site, tasks):
        yield site, tasks


async def everything(client: Client) -> bytes:
    """Return all that comes until the server ends the connection."""
    received = b""
    while data := await client.receive():
        received += data
    return received


# what is sent


@on_each_loop
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("announced", [True, False])
async def test_a_file_is_the_body(loop: Loop, size: int, announced: bool, file: Path) -> None:
    fill(file, size)
    async with served(loop, sending(str(file), size if announced else None)) as (site, _):
        client = await site.connect()
        for _ in range(2):
            found = await client.get()
            assert (found.status, found.body == content(size)) == (200, True)
            # of one piece the server knows the length
            assert ("content-length" in found.headers) == (announced or size <= PIECE)


@on_each_loop
async def test_a_client_of_http_1_0_gets_the_file(loop: Loop, file: Path) -> None:
    fill(file, 3 * PIECE)
    async with served(loop, sending(str(file))) as (site, _):
        client = await site.connect()
        await client.send(OLD)
        assert (await everything(client)).partition(b"\r\n\r\n")[2] == content(3 * PIECE)


@on_each_loop
async def test_a_client_behind_tls_gets_the_file(loop: Loop, file: Path) -> None:
    fill(file, 3 * PIECE)
    options = {"ssl_context": certificates().server}
    async with served(loop, sending(str(file)), **options) as (site, _):
        conn = await open_tls_stream(
            LOCALHOST, site.port, ssl_context=certificates().client, server_hostname=SERVER_NAME
        )
        async with conn:
            await conn.send_all(LAST_GET)
            received = b""
            while data := await conn.receive_some(65536):
                received += data
    assert received.endswith(b"0\r\n\r\n")
    # without the lines of its chunks
    body = received.partition(b"\r\n\r\n")[2]
    assert len(body) > 3 * PIECE
    assert body.partition(b"\r\n")[2].startswith(content(PIECE))


@on_each_loop
@pytest.mark.parametrize("length", [3000, None])
async def test_a_head_has_no_body(loop: Loop, length: int | None, file: Path) -> None:
    async with served(loop, sending(str(file), length)) as (site, _):
        client = await site.connect()
        await client.send(HEAD)
        found = await client.response("HEAD")
        assert (found.status, found.headers.get("content-length")) == (200, length and str(length))
        assert (await client.get()).body == content(3000)


@on_each_loop
async def test_the_extension_is_offered_to_requests_and_not_to_websockets(loop: Loop, file: Path) -> None:
    seen: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append("http.response.pathsend" in scope["extensions"])
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body"})

    async with served(loop, app) as (site, _):
        await (await site.connect()).get()
    async with site_of(loop, AsgiHandler(app)) as (site, _):
        await (await site.connect()).get()
    assert seen == [True, False]


# what cannot be sent


@on_each_loop
@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "null", "surrogate", "relative", "bytes", "none"])
async def test_what_is_no_file_is_answered_with_500(
    loop: Loop, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "fifo")
    paths: dict[str, object] = {
        "missing": str(tmp_path / "missing"),
        "folder": str(tmp_path),
        "fifo": str(tmp_path / "fifo"),
        "null": "/a\0b",
        "surrogate": "/\ud800",
        "relative": "file",
        "bytes": b"/file",
        "none": None,
    }
    errors: list[BaseException] = []
    async with served(loop, sending(paths[kind], None, errors)) as (site, _):
        assert (await (await site.connect()).get()).status == 500
    assert [type(error) for error in errors] == [ResponseError]
    assert "failed" in caplog.text


@on_each_loop
@pytest.mark.parametrize("announced", [2999, 3001, 0])
async def test_a_file_that_is_not_as_long_as_announced_is_answered_with_500(
    loop: Loop, announced: int, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(loop, sending(str(file), announced)) as (site, _):
        assert (await (await site.connect()).get()).status == 500
    assert f"the file has 3000 bytes, and the Content-Length of its response leaves {announced}" in caplog.text


@on_each_loop
async def test_a_file_before_the_start_or_after_the_end_is_an_error(loop: Loop, file: Path) -> None:
    message = {"type": "http.response.pathsend", "path": str(file)}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(ResponseError, match="before the response was started"):
            await send(message)
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"x"})
        with pytest.raises(ResponseError, match="complete"):
            await send(message)
        seen.append(True)

    seen: list[bool] = []
    async with served(loop, app) as (site, _):
        assert (await (await site.connect()).get()).body == b"x"
    assert seen == [True]


@on_each_loop
async def test_nothing_follows_the_file_nor_comes_between_its_pieces(loop: Loop, file: Path) -> None:
    fill(file, HUGE)
    messages: list[Message] = [
        {"type": "http.response.body", "body": b"x"},
        {"type": "http.response.pathsend", "path": str(file)},
    ]
    refused: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def refuse() -> None:
            for message in messages:
                with pytest.raises(ResponseError):
                    await send(message)
                refused.append(1)

        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % HUGE)]})
        async with loop.tasks() as tasks:
            running = tasks.start(send, messages[1])
            await loop.settle()
            await refuse()
            await running.succeeds()
        await refuse()

    async with served(loop, app, send_buffer=NARROW) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await site.until(lambda: len(refused) == 2)
        assert (await client.response()).body == content(HUGE)
        await site.until(lambda: len(refused) == 4)


# a file that changes while it is sent


@on_each_loop
@pytest.mark.parametrize("announced", [True, False])
async def test_a_file_that_is_truncated_cuts_the_response(
    loop: Loop, announced: bool, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(file, HUGE)
    async with served(loop, sending(str(file), HUGE if announced else None), send_buffer=NARROW) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(GET)
        await site.until(lambda: opened(file))
        os.truncate(file, PIECE)
        with pytest.raises((h11.RemoteProtocolError, OSError)):
            await client.response()
        await site.reason()
    assert "the file has become shorter while it was sent" in caplog.text


@on_each_loop
@pytest.mark.parametrize("announced", [True, False])
async def test_of_a_file_that_grows_is_sent_what_it_was(loop: Loop, announced: bool, file: Path) -> None:
    fill(file, HUGE)
    async with served(loop, sending(str(file), HUGE if announced else None), send_buffer=NARROW) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(LAST_GET)
        await site.until(lambda: opened(file))
        with file.open("ab") as appending:
            appending.write(b"more")
        assert (await client.response()).body == content(HUGE)
        assert await client.receive() == b""


@on_each_loop
@pytest.mark.parametrize("size", [0, 3000])
async def test_nor_of_one_that_grows_while_it_is_opened(
    loop: Loop, size: int, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(file, size)
    ask = os.fstat

    def ask_and_grow(descriptor: int) -> os.stat_result:
        found = ask(descriptor)
        if os.path.samestat(found, file.stat()):
            with file.open("ab") as appending:
                appending.write(b"more")
        return found

    errors: list[BaseException] = []
    async with served(loop, sending(str(file), None, errors)) as (site, _):
        client = await site.connect()
        monkeypatch.setattr(os, "fstat", ask_and_grow)
        assert (await client.get()).body == content(size)
        monkeypatch.undo()
        await client.send(LAST_GET)
        assert (await client.response()).body == content(size) + b"more"
    assert errors == []


# what waits

Call = Callable[..., Any]


class System:
    """What the server asks of the system about files, and in which threads. `preadv` fails with `refusal`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refusal: int) -> None:
        self.calls: list[tuple[str, bool]] = []
        self._home = threading.get_ident()
        self._refusal = refusal
        # a call of a thread waits for it
        self.goes_on = threading.Event()
        self.goes_on.set()
        # an event of the loop: a thread waits for that
        self.waits = Event()
        self._call = call_soon()
        for name in ("open", "pread", "preadv"):
            monkeypatch.setattr(os, name, self._noting(name, getattr(os, name)))

    def _noting(self, name: str, call: Call) -> Call:
        def noted(*arguments: Any) -> Any:
            here = threading.get_ident() == self._home
            if name == "open" and not str(arguments[0]).endswith("file"):
                return call(*arguments)
            self.calls.append((name, here))
            if not here:
                if not self.goes_on.is_set():
                    self._call(self.waits.set)
                assert self.goes_on.wait(SURELY)
            if name == "preadv":
                assert arguments[3] == os.RWF_NOWAIT
                if self._refusal:
                    raise OSError(self._refusal, os.strerror(self._refusal))
            return call(*arguments)

        return noted

    def count(self, name: str) -> int:
        return [called for called, _ in self.calls].count(name)


@on_each_loop
@pytest.mark.parametrize("refusal", [errno.EAGAIN, errno.EOPNOTSUPP, 0])
async def test_nothing_waits_for_the_disk_in_the_event_loop(
    loop: Loop, refusal: int, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 5 * PIECE
    fill(file, size)
    system = System(monkeypatch, refusal)
    async with served(loop, sending(str(file), size)) as (site, _):
        assert (await (await site.connect()).get()).body == content(size)
    assert {call for call, here in system.calls if here} == {"preadv"}
    assert system.count("open") == 1
    # a system that cannot read without a wait is asked once
    assert system.count("preadv") == (1 if refusal == errno.EOPNOTSUPP else 3)
    assert system.count("pread") == (2 if not refusal else 5)


@on_each_loop
@pytest.mark.parametrize("leaves", [True, False], ids=["cut", "sent"])
async def test_nor_for_the_close(loop: Loop, leaves: bool, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted meanwhile is freed by it, and another machine may be asked."""
    fill(file, HUGE if leaves else 2 * PIECE)
    home, close, closed = threading.get_ident(), os.close, list[int]()

    def noted(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), file.stat()):
            closed.append(threading.get_ident())
        close(descriptor)

    monkeypatch.setattr(os, "close", noted)
    async with served(loop, sending(str(file)), send_buffer=NARROW) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        if leaves:
            await client.send(GET)
            await client.receive()
            client.conn.close()
        else:
            assert (await client.get()).body == content(2 * PIECE)
        await site.until(lambda: closed)
    assert home not in closed


@on_each_loop
async def test_a_lease_that_another_program_gives_up_is_waited_for(
    loop: Loop, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a file server: without a wait it is EAGAIN."""
    fill(file, 100)
    opening = os.open

    def leased(path: Any, flags: int, *arguments: Any) -> int:
        if str(path) == str(file) and flags & os.O_NONBLOCK:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return opening(path, flags, *arguments)

    monkeypatch.setattr(os, "open", leased)
    async with served(loop, sending(str(file))) as (site, _):
        assert (await (await site.connect()).get()).body == content(100)


@on_each_loop
async def test_an_end_that_a_read_without_a_wait_reports_is_looked_at_again(
    loop: Loop, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux 5.9 reports one where there is none."""
    fill(file, 3 * PIECE)
    monkeypatch.setattr(os, "preadv", lambda *_: 0)
    async with served(loop, sending(str(file))) as (site, _):
        assert (await (await site.connect()).get()).body == content(3 * PIECE)


@on_each_loop
async def test_a_file_that_is_slow_to_open_holds_nobody_and_keeps_its_head(
    loop: Loop, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System(monkeypatch, 0)
    system.goes_on.clear()
    one_file = sending(str(file))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/":
            await one_file(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"other"})

    async with served(loop, app) as (site, tasks):
        slow = await site.connect()
        await slow.send(GET)
        await system.waits.wait()
        if loop.name != "asyncio":
            # where time stands still while a thread works
            await loop.sleep(2 * HOLD if loop.is_virtual else 2 * HOLD / loop.seconds(1))
        answering = tasks.start(slow.response)
        assert (await (await site.connect()).get(GET.replace(b"/ ", b"/other "))).body == b"other"
        assert answering.pending
        system.goes_on.set()
        found = await answering.succeeds()
        assert (found.body, found.headers["content-length"]) == (content(3000), "3000")


# its end


@on_each_loop
@pytest.mark.parametrize("call", ["open", "pread"])
async def test_a_client_that_leaves_a_slow_disk_ends_its_request(
    loop: Loop, call: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that nothing can end closes the file."""
    fill(file, HUGE)
    system = System(monkeypatch, errno.EAGAIN)
    if call == "open":
        system.goes_on.clear()
    cancelled = Event()
    one_file = sending(str(file))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await one_file(scope, receive, send)
        except Exception:
            raise AssertionError("a client that has left is no error of the file") from None
        except BaseException:
            cancelled.set()
            raise

    async with served(loop, app) as (site, _):
        client = await site.connect()
        await client.send(GET)
        if call == "pread":
            await client.receive()
            system.goes_on.clear()
        await system.waits.wait()
        client.conn.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.conn.close()
        await cancelled.wait()
        system.goes_on.set()
        await site.until(lambda: not opened(file))


@on_each_loop
@pytest.mark.parametrize("cancels", [True, False])
async def test_a_client_that_leaves_in_the_middle_ends_the_file(loop: Loop, cancels: bool, file: Path) -> None:
    fill(file, HUGE)
    returned: list[bool] = []
    one_file = sending(str(file), HUGE)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await one_file(scope, receive, send)
        returned.append(True)

    options: dict[str, Any] = {"send_buffer": NARROW, "cancel_on_disconnect": cancels}
    async with served(loop, app, **options) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(GET)
        await site.until(lambda: opened(file))
        client.conn.close()
        # the send returns, as that of any other piece
        await site.until(lambda: returned)
        await site.until(lambda: not opened(file))


@on_each_loop
async def test_a_client_that_does_not_read_is_reset_in_its_time(loop: Loop, file: Path) -> None:
    fill(file, HUGE)
    async with served(loop, sending(str(file), HUGE), send_buffer=NARROW, write_grace=5.0, write_min_rate=1e9) as (
        site,
        _,
    ):
        client = await site.connect(receive_buffer=NARROW)
        begun = loop.after(0)
        await client.send(GET)
        assert await site.reason() is Reason.WRITE_TIMEOUT
        assert loop.after(0) - begun >= loop.seconds(5.0)
        await site.until(lambda: not opened(file))


@on_each_loop
async def test_the_handlers_deadline_ends_a_slow_disk(loop: Loop, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = System(monkeypatch, 0)
    system.goes_on.clear()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # the thread has begun, so that virtual time may go on
        scope["extensions"]["deadlined"].set_handler_deadline(loop.after(-1))
        await sending(str(file))(scope, receive, send)

    async with served(loop, app) as (site, _):
        assert (await (await site.connect()).get()).status == 504
        system.goes_on.set()
        await site.until(lambda: not opened(file))


@pytest.mark.parametrize("opens", [True, False])
def test_a_thread_that_begins_after_the_end_opens_nothing(opens: bool, file: Path) -> None:
    reader = FileReader(str(file))
    if not opens:
        assert reader.use(100, opens=True) == content(100)
        assert opened(file)
    reader.close()
    await_closed(file)
    assert reader.use(100, opens) == b""
