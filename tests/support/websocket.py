"""The client's end of a websocket: frames byte by byte, or wsproto, so that the server is judged by somebody else."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import trio
import wsproto
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate

from deadlined.asgi import App, AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Exchange
from tests.support.http import Client, Site

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="

UPGRADE = (
    b"GET /chat HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: " + KEY + b"\r\n"
)
HANDSHAKE = UPGRADE + b"\r\n"

ACCEPT = {"type": "websocket.accept"}
CONNECT = {"type": "websocket.connect"}

MASK = b"\x01\x02\x03\x04"


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bytes = MASK, length: int | None = None
) -> bytes:
    """Return a frame as a client sends it. `length` is announced instead of the payload's; `mask` b"" leaves it
    unmasked."""
    size = len(payload) if length is None else length
    first = fin << 7 | rsv << 4 | opcode
    second = bool(mask) << 7
    if size < 126:
        head = struct.pack("!BB", first, second | size)
    elif size < 65536:
        head = struct.pack("!BBH", first, second | 126, size)
    else:
        head = struct.pack("!BBQ", first, second | 127, size)
    masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload)) if any(mask) else payload
    return head + mask + masked


def closing(code: int, reason: str = "") -> bytes:
    """Return a client's close frame."""
    return frame(CLOSE, struct.pack("!H", code) + reason.encode())


def deflated(data: bytes) -> bytes:
    """Return `data` as a compressed message has it (RFC 7692, 7.2.1)."""
    encoder = zlib.compressobj(wbits=-12)
    return (encoder.compress(data) + encoder.flush(zlib.Z_SYNC_FLUSH))[:-4]


@dataclass(frozen=True)
class Denied:
    """A response that is not 101."""

    status: int
    headers: dict[str, str]
    body: bytes


class Peer:
    """A client's end of a websocket. `subprotocol` and `headers` are those of the 101."""

    def __init__(self, client: Client, extensions: list[Any]) -> None:
        self.client = client
        self._wire = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self._extensions = extensions
        self._events: list[Event] = []
        self.subprotocol: str | None = None
        self.headers: dict[str, str] = {}
        # what `event` answers the server's pings and close with; False to stay silent
        self.answers = True

    async def open(self, path: str = "/", subprotocols: list[str] | None = None, **headers: str) -> None:
        """Ask for the websocket, and expect it to be accepted."""
        denied = await self.ask(path, subprotocols, **headers)
        assert denied is None, denied

    async def ask(self, path: str = "/", subprotocols: list[str] | None = None, **headers: str) -> Denied | None:
        """Ask for the websocket. Return the response if it is denied."""
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        request = Request("x", path, extensions=self._extensions, extra_headers=fields, subprotocols=subprotocols or [])
        await self.client.send(self._wire.send(request))
        event = await self.event()
        if isinstance(event, AcceptConnection):
            self.subprotocol = event.subprotocol
            self.headers = {name.decode(): value.decode() for name, value in event.extra_headers}
            return None
        assert isinstance(event, RejectConnection), event
        body = b""
        while event.has_body:
            piece = await self.event()
            assert isinstance(piece, RejectData)
            body += piece.data
            if piece.body_finished:
                break
        return Denied(event.status_code, {name.decode(): value.decode() for name, value in event.headers}, body)

    async def send(self, *events: Event) -> None:
        await self.client.send(b"".join(self._wire.send(event) for event in events))

    async def say(self, message: str | bytes) -> None:
        await self.send(TextMessage(message) if isinstance(message, str) else BytesMessage(message))

    async def event(self) -> Event:
        """Return the next event. EOFError if the server has closed without a close frame before it."""
        while not self._events:
            data = await self.client.receive()
            self._wire.receive_data(data or None)
            for event in self._wire.events():
                if isinstance(event, CloseConnection) and not data:
                    raise EOFError("the server has closed without a close frame")
                self._events.append(event)
                if self.answers and isinstance(event, Ping | CloseConnection):
                    await self._answer(event)
        return self._events.pop(0)

    async def message(self) -> str | bytes:
        """Return the next message, and skip what else comes."""
        whole: Any = None
        while True:
            event = await self.event()
            if isinstance(event, CloseConnection):
                raise EOFError(f"the server has closed with {event.code} {event.reason!r}")
            if isinstance(event, Message):
                whole = event.data if whole is None else whole + event.data
                if event.message_finished:
                    return whole if isinstance(whole, str) else bytes(whole)

    async def pong(self) -> bytes:
        """Return the payload of the next pong."""
        while True:
            event = await self.event()
            if isinstance(event, Pong):
                return bytes(event.payload)

    async def close(self, code: int = 1000, reason: str | None = None) -> tuple[int, str]:
        """Close, and return the server's answer, once the server has closed the connection."""
        await self.send(CloseConnection(code, reason))
        return await self.closed()

    async def closed(self) -> tuple[int, str]:
        """Wait until the server has closed, and return the code and reason of its close frame."""
        while True:
            event = await self.event()
            if isinstance(event, CloseConnection):
                assert await self.client.rest() == b""
                return event.code, event.reason or ""

    async def _answer(self, event: Ping | CloseConnection) -> None:
        if self._wire.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            await self.client.send_what_is_taken(self._wire.send(event.response()))


async def peer(
    site: Site,
    path: str = "/",
    *,
    compressed: bool = False,
    receive_buffer: int | None = None,
    answers: bool = True,
) -> Peer:
    """Return a new client's end of a websocket that was accepted."""
    new = await stranger(site, compressed=compressed, receive_buffer=receive_buffer)
    new.answers = answers
    await new.open(path)
    return new


async def stranger(site: Site, *, compressed: bool = False, receive_buffer: int | None = None) -> Peer:
    """Return a client that has not asked for its websocket yet."""
    client = await site.connect(receive_buffer=receive_buffer)
    return Peer(client, [PerMessageDeflate()] if compressed else [])


async def raw(site: Site) -> Client:
    """Return a client whose websocket was accepted, and that writes its own frames."""
    client = await site.connect()
    await client.send(HANDSHAKE)
    received = b""
    while b"\r\n\r\n" not in received:
        received += await client.receive()
    assert received.startswith(b"HTTP/1.1 101 ")
    client._left = received.partition(b"\r\n\r\n")[2]
    return client


async def close_frame(client: Client) -> tuple[int, str]:
    """Read to the end. Return code and reason of the close frame that comes last, which must be there, and whole."""
    data = await client.rest()
    while data:
        opcode, size = data[0] & 15, data[1]
        assert data[0] & 0x80, "a fragment"
        if size == 126:
            size, data = struct.unpack("!H", data[2:4])[0], data[2:]
        payload, data = data[2 : 2 + size], data[2 + size :]
        if opcode == CLOSE:
            assert data == b"", "more after the close frame"
            assert len(payload) == size
            return struct.unpack("!H", payload[:2])[0] if payload else 1005, payload[2:].decode()
    raise AssertionError("no close frame")


# applications

Handler = Callable[[Exchange], Awaitable[object]]


class Told:
    """An application that accepts, echoes, and keeps what it was told."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.scopes: list[Scope] = []
        self.errors: list[BaseException] = []
        self.cancelled = False
        self.echoes = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        assert await receive() == CONNECT
        await send(ACCEPT)
        try:
            while True:
                message = await receive()
                self.messages.append(message)
                if message["type"] == "websocket.disconnect":
                    return
                if self.echoes:
                    await send({**message, "type": "websocket.send"})
        except Exception as error:
            self.errors.append(error)
            raise
        except BaseException:
            self.cancelled = True
            raise

    @property
    def disconnect(self) -> tuple[int, str]:
        """Code and reason of the disconnect that came last."""
        message = self.messages[-1]
        assert message["type"] == "websocket.disconnect"
        return message["code"], message["reason"]


def handler(app: App) -> Handler:
    """Return `app` as a handler of exchanges."""
    return AsgiHandler(app)


async def accepting(receive: Receive, send: Send) -> None:
    """Take the connect, and accept."""
    assert await receive() == CONNECT
    await send(ACCEPT)


async def all_ended(site: Site) -> None:
    """Wait, in virtual time, until no connection and no handler is left."""
    for _ in range(1000):
        counts = site.server.statistics()
        if not (counts.open or counts.background):
            return
        await trio.sleep(1)
    raise AssertionError(f"{counts.open} connections and {counts.background} handlers are left")
