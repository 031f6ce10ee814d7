"""Clients that were not written here: `websockets` in all its modes, aiohttp and curl."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import Coroutine
from typing import Any

import aiohttp
import pytest
import websockets
from websockets.asyncio.client import connect
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.sync.client import connect as connect_in_thread

from tests.applications.daemons import found
from tests.applications.running import Server
from tests.support.command import PATIENCE
from tests.support.websocket_peer import KEY, accepts

MESSAGES: list[str | bytes] = ["", "hello", "κόσμε", b"", b"\x00\xff", "x" * 200_000, bytes(200_000), b"\r\n" * 70]

COMPRESSIONS: dict[str, dict[str, Any]] = {
    "none": {"compression": None},
    "default": {},
    "small windows": {
        "extensions": [ClientPerMessageDeflateFactory(server_max_window_bits=9, client_max_window_bits=9)],
        "compression": None,
    },
    "no context": {
        "extensions": [
            ClientPerMessageDeflateFactory(server_no_context_takeover=True, client_no_context_takeover=True)
        ],
        "compression": None,
    },
}


def url(server: Server, path: str) -> str:
    return f"ws://127.0.0.1:{server.port}{path}"


def run(main: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE):
            await main

    asyncio.run(limited())


@pytest.mark.parametrize("options", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_websockets_on_asyncio(server: Server, options: dict[str, Any]) -> None:
    async def main() -> None:
        async with connect(url(server, "/echo"), proxy=None, **options) as client:
            assert len(client.protocol.extensions) == (options != COMPRESSIONS["none"])
            for message in MESSAGES:
                await client.send(message)
                assert await client.recv() == message
            # in fragments, and with a ping that is answered between them
            await client.send(["fra", "g", "", "ments"])
            assert await client.recv() == "fragments"
            await (await client.ping(b"are you there?"))
            await client.close(4001, "ça suffit")
            assert (client.close_code, client.close_reason) == (4001, "ça suffit")

    run(main())


@pytest.mark.parametrize("options", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_websockets_in_a_thread(server: Server, options: dict[str, Any]) -> None:
    with connect_in_thread(url(server, "/echo"), proxy=None, **options) as client:
        for message in MESSAGES:
            client.send(message)
            assert client.recv(PATIENCE) == message
        client.send([b"frag", b"ments"])
        assert client.recv(PATIENCE) == b"fragments"
        assert client.ping().wait(PATIENCE)


def test_an_answer_in_frames_is_whole(server: Server) -> None:
    async def main() -> None:
        data = bytes(range(256)) * 8000
        async with connect(url(server, "/digest"), proxy=None, max_size=None) as client:
            await client.send(data)
            assert await client.recv() == f"binary {len(data)} {hashlib.sha1(data).hexdigest()}"
            await client.send(data[start : start + 1000] for start in range(0, len(data), 1000))
            assert await client.recv() == f"binary {len(data)} {hashlib.sha1(data).hexdigest()}"

    run(main())


def test_subprotocols(server: Server) -> None:
    async def main() -> None:
        protocols = [websockets.Subprotocol(name) for name in ("first", "second")]
        async with connect(url(server, "/subprotocol"), proxy=None, subprotocols=protocols) as client:
            assert client.subprotocol == "second"
            assert await client.recv() == "first,second"

    run(main())


def test_many_messages_until_the_server_closes(server: Server) -> None:
    async def main() -> None:
        async with connect(url(server, "/many"), proxy=None) as client:
            await client.send("2000")
            assert [message async for message in client] == [str(number) for number in range(2000)]
            assert client.close_code == 1000

    run(main())


def test_many_clients_at_once(server: Server) -> None:
    async def one(number: int) -> None:
        async with connect(url(server, "/echo"), proxy=None, compression=None) as client:
            for each in range(10):
                await client.send(f"{number} {each}")
                assert await client.recv() == f"{number} {each}"

    async def main() -> None:
        await asyncio.gather(*(one(number) for number in range(50)))

    run(main())


def test_a_close_of_the_server_is_an_exception_of_the_client(server: Server) -> None:
    async def main() -> None:
        async with connect(url(server, "/close-first"), proxy=None) as client:
            with pytest.raises(websockets.ConnectionClosedError) as caught:
                await client.recv()
            assert caught.value.rcvd is not None
            assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4000, "first")

    run(main())


def test_a_refusal_is_an_exception_of_the_client(server: Server) -> None:
    with pytest.raises(websockets.InvalidStatus) as caught, connect_in_thread(url(server, "/refuse"), proxy=None):
        pass
    assert caught.value.response.status_code == 403


def test_aiohttp(server: Server) -> None:
    async def main() -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url(server, "/echo"), compress=15, autoping=False) as client,
        ):
            assert client.compress
            for message in MESSAGES:
                if isinstance(message, str):
                    await client.send_str(message)
                    assert await client.receive_str() == message
                else:
                    await client.send_bytes(message)
                    assert await client.receive_bytes() == message
            await client.ping(b"there?")
            pong = await client.receive()
            assert (pong.type, pong.data) == (aiohttp.WSMsgType.PONG, b"there?")
            assert await client.close(code=4001, message=b"bye")
            assert client.close_code == 4001

    run(main())


def curl(server: Server, path: str, *fields: str) -> bytes:
    """Return all that curl shows of an upgrade, up to the end of a 101's head, or of the response."""
    asked = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}"]
    options = [option for field in (*asked, *fields) for option in ("-H", field)]
    command = [found("curl"), "-sS", "-i", "-N", "--http1.1", "--noproxy", "*", *options]
    with subprocess.Popen([*command, f"http://127.0.0.1:{server.port}{path}"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        shown = b""
        try:
            while not (shown.startswith(b"HTTP/1.1 101") and b"\r\n\r\n" in shown):
                line = process.stdout.readline()
                if not line:
                    break
                shown += line
            return shown
        finally:
            process.kill()


def test_curl_gets_the_upgrade(server: Server) -> None:
    head = curl(server, "/subprotocol", "Sec-WebSocket-Protocol: chat")
    first, *fields = head.decode().split("\r\n")
    assert first.startswith("HTTP/1.1 101 ")
    assert f"sec-websocket-accept: {accepts()}" in fields
    assert "sec-websocket-protocol: chat" in fields


def test_curl_gets_a_refusal(server: Server) -> None:
    assert curl(server, "/refuse").startswith(b"HTTP/1.1 403 ")
    assert curl(server, "/echo", "Sec-WebSocket-Version: 12").startswith(b"HTTP/1.1 4")
