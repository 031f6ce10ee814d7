"""An upstream that is broken, slow or gone: what the client is told."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deadlined.http import Reason
from deadlined.net.names import AddressInfo
from deadlined.proxy import Address, Proxy, ProxyTimeouts
from deadlined.proxy.upstream import TOLERATED
from tests.support.conformance import Loop, on_each_loop, pretend
from tests.support.conformance_http import site_of
from tests.support.http import GET, chunk
from tests.support.net import LOCALHOST
from tests.support.proxy import OFF, OK, POST, fail_to_connect, guarding, problem

LAST = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


@on_each_loop
async def test_an_upstream_that_refuses_connections_is_a_502(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        guarded.upstream.stop()
        client = await guarded.site.connect()
        for _ in range(2):
            # the connection of the client goes on
            await client.send(GET)
            assert await problem(client) == (502, "upstream_connect_failed")


@on_each_loop
async def test_an_upstream_for_which_there_is_no_local_address_leaves_its_requests_to_the_others(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails at once, so it has always the fewest requests."""
    async with guarding(loop, 2) as guarded:
        fail_to_connect(monkeypatch, guarded.upstream, errno.EADDRNOTAVAIL)
        guarded.tasks.start(guarded.upstreams[1].serve, LAST)
        client = await guarded.site.connect()
        for _ in range(3 * TOLERATED):
            assert (await client.get(GET)).status == 200
        unreachable, reachable = guarded.proxy.statistics().upstreams
        assert (unreachable.failures, unreachable.ejected) == ({"upstream_connect_failed": TOLERATED}, True)
        assert (reachable.failures, reachable.tries) == ({}, 3 * TOLERATED)


@on_each_loop
async def test_an_upstream_for_which_there_is_no_local_address_is_a_502(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarding(loop) as guarded:
        fail_to_connect(monkeypatch, guarded.upstream, errno.EADDRNOTAVAIL)
        client = await guarded.site.connect()
        await client.send(GET)
        assert await problem(client) == (502, "upstream_connect_failed")
    assert "no local address or port is left for a connection to the upstream" in caplog.text


@on_each_loop
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_what_the_guard_lacks_for_any_connection_is_a_503_and_no_upstreams_failure(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    async with guarding(loop) as guarded:
        fail_to_connect(monkeypatch, guarded.upstream, code)
        client = await guarded.site.connect()
        await client.send(GET)
        assert await problem(client) == (503, "overloaded")
        assert guarded.proxy.statistics().upstreams[0].failures == {}


@on_each_loop
async def test_an_upstream_that_ends_without_an_answer_is_a_502(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(POST)
        await peer.head()
        await peer.read(3)
        await peer.conn.aclose()
        assert await problem(client) == (502, "upstream_closed")
        assert guarded.proxy.statistics().retries == 0


@on_each_loop
@pytest.mark.parametrize(
    "response",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nx: y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + bytes(100_000),
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ],
    ids=["noise", "lengths", "framing", "line", "long", "upgrade"],
)
async def test_a_malformed_response_is_a_502_and_is_not_passed_on(loop: Loop, response: bytes) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(POST)
        guarded.tasks.start(peer.answer, response)
        assert await problem(client) == (502, "upstream_malformed")


@on_each_loop
async def test_a_response_that_breaks_off_resets_the_client(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin()
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
        assert (await client.receive()).endswith(b"half")
        await peer.conn.aclose()
        assert await client.end() == "reset"
        assert await guarded.site.reason() is Reason.UPSTREAM_FAILED
        # one line says why, and nobody's traceback
        (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert "upstream" in record.getMessage()
        assert record.exc_info is None


@on_each_loop
async def test_a_response_that_breaks_off_in_its_chunks_ends_the_connection(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin()
        await peer.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"half"))
        assert (await client.receive()).endswith(chunk(b"half"))
        await peer.send(b"zz\r\n")
        # the last chunk is missing
        assert await client.rest() == b""


@on_each_loop
async def test_an_upstream_that_does_not_answer_in_time_is_a_504(loop: Loop) -> None:
    async with guarding(loop, upstream_first_byte=60) as guarded:
        client = await guarded.site.connect()
        due = loop.after(60)
        await client.send(GET)
        peer = await guarded.upstream.accept()
        await peer.head()
        # a head that trickles extends nothing
        await peer.send(b"HTTP/1.1 200 OK\r\n")
        await loop.sleep(30)
        await peer.send(b"x: y\r\n")
        assert await problem(client) == (504, "upstream_first_byte_timeout")
        assert loop.is_at(due)
        assert await peer.end() in ("eof", "reset")


@on_each_loop
async def test_a_response_may_be_silent_for_so_long_only(loop: Loop) -> None:
    async with guarding(loop, upstream_idle=60) as guarded:
        client, peer = await guarded.begin()
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")
        for _ in range(4):
            # what comes extends it: a stream has no bound
            await loop.sleep(50)
            due = loop.after(60)
            await peer.send(b"x")
        assert await client.end() == "reset"
        assert loop.is_at(due)


@on_each_loop
async def test_an_upstream_that_accepts_no_connection_in_time_is_a_504(loop: Loop) -> None:
    async with guarding(loop, upstream_connect=0) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        assert await problem(client) == (504, "upstream_connect_timeout")


@on_each_loop
async def test_a_try_keeps_the_timeouts_with_which_it_has_begun(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slowly(port: int) -> list[AddressInfo]:
        await loop.sleep(50)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (LOCALHOST, port))]

    async with guarding(loop) as guarded:
        pretend(monkeypatch, slowly)
        used = ProxyTimeouts(**{**OFF, "upstream_per_try": loop.seconds(600)})
        proxy = Proxy([Address("slow.example", guarded.upstream.address.port)], timeouts=used)
        async with site_of(loop, proxy, respond=proxy.respond) as (site, tasks):
            client = await site.connect()
            await client.send(GET)
            await loop.sleep(10)
            proxy.configure(timeouts=replace(used, upstream_per_try=loop.seconds(20)))
            tasks.start(guarded.upstream.serve)
            assert (await client.response()).status == 200
        proxy.close()


@on_each_loop
async def test_interim_responses_without_end_are_refused(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(POST)
        await peer.answer(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100 + OK)
        assert await problem(client) == (502, "upstream_malformed")


@contextmanager
def answering_first(path: Path) -> Iterator[None]:
    """An upstream that answers each connection when it accepts it, and closes it: as one that has enough of them."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                with accepted:
                    accepted.sendall(b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@on_each_loop
@pytest.mark.parametrize("request_bytes", [GET, POST], ids=["GET", "POST"])
async def test_an_answer_that_came_before_the_request_was_sent_is_passed_on(
    loop: Loop, request_bytes: bytes, tmp_path: Path
) -> None:
    """On a unix socket the request can then not be sent, which is more likely than not in one of these."""
    with answering_first(tmp_path / "s"):
        proxy = Proxy([Address(path=str(tmp_path / "s"))], timeouts=ProxyTimeouts(**OFF))
        async with site_of(loop, proxy, respond=proxy.respond) as (site, _):
            client = await site.connect()
            for _number in range(50):
                await client.send(request_bytes)
                assert (await client.response()).body == b"busy"
        assert proxy.statistics().upstreams[0].failures == {}
        proxy.close()
