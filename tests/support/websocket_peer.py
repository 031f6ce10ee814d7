"""A websocket client on a raw socket, with a codec of its own (RFC 6455 and 7692).

What it sends may be wrong in any way. What it receives is checked: a server that breaks a rule of framing, of UTF-8 or
of what it has negotiated raises AssertionError.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import socket
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.command import PATIENCE

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KINDS = {TEXT: "text", BINARY: "binary", CLOSE: "close", PING: "ping", PONG: "pong"}

# the example of RFC 6455, 5.7
MASK = b"\x37\xfa\x21\x3d"
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY = base64.b64encode(b"the sample nonce").decode()

# a close frame without a code is read as this, which is never sent
NO_CODE = 1005


def masked(payload: bytes, mask: bytes) -> bytes:
    """Return the bytes of `payload`, each exclusive-or'd with one of the four of `mask`."""
    length = len(payload)
    key = (mask * (length // 4 + 1))[:length]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(length, "big")


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    mask: bytes | None = MASK,
    length: int | None = None,
    wide: int = 0,
) -> bytes:
    """Return the bytes of a frame. `rsv`: the reserved bits as a number, 4 is the first. `mask`: None for none.
    `length`: what is announced if it is not the payload's. `wide`: announce the length in at least 2 or 8 bytes."""
    announced = len(payload) if length is None else length
    first = fin << 7 | rsv << 4 | opcode
    masks = 0x80 if mask is not None else 0
    if announced > 65535 or wide == 8:
        head = struct.pack("!BBQ", first, masks | 127, announced)
    elif announced > 125 or wide == 2:
        head = struct.pack("!BBH", first, masks | 126, announced)
    else:
        head = struct.pack("!BB", first, masks | announced)
    return head + payload if mask is None else head + mask + masked(payload, mask)


def closing(code: int | None = 1000, reason: bytes = b"") -> bytes:
    """Return the bytes of a close frame; without a code if that is None."""
    return frame(CLOSE, b"" if code is None else struct.pack("!H", code) + reason)


def fragments(opcode: int, *payloads: bytes, rsv: int = 0) -> bytes:
    """Return the bytes of one message in as many frames."""
    last = len(payloads) - 1
    return b"".join(
        frame(CONTINUATION if index else opcode, payload, fin=index == last, rsv=0 if index else rsv)
        for index, payload in enumerate(payloads)
    )


class Event(NamedTuple):
    """What a client receives: a message (`text`, `binary`), a control frame (`ping`, `pong`, `close`), or the end of
    the connection (`fin`, `reset`). `code` is that of a close."""

    kind: str
    data: bytes = b""
    code: int = 0


FIN = Event("fin")
RESET = Event("reset")
ENDS = (FIN, RESET)


class Deflate:
    """permessage-deflate as a client does it, with what a server has agreed to."""

    def __init__(self, agreed: dict[str, str]) -> None:
        self._bits = int(agreed.get("client_max_window_bits", 15))
        self._resets = "client_no_context_takeover" in agreed
        self._server_bits = int(agreed.get("server_max_window_bits", 15))
        self._server_resets = "server_no_context_takeover" in agreed
        self._compressor = zlib.compressobj(wbits=-self._bits)
        self._decompressor = zlib.decompressobj(-self._server_bits)

    def compress(self, data: bytes) -> bytes:
        """Return the payload of a message."""
        if self._resets:
            self._compressor = zlib.compressobj(wbits=-self._bits)
        payload = self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        return payload[:-4]

    def decompress(self, payload: bytes) -> bytes:
        """Return the data of a message. Raise zlib.error if the server uses a window or a context that it must not."""
        if self._server_resets:
            self._decompressor = zlib.decompressobj(-self._server_bits)
        return self._decompressor.decompress(payload + b"\x00\x00\xff\xff")


def agreed_deflate(fields: Iterable[tuple[str, str]], offer: str) -> dict[str, str] | None:
    """Return the parameters that a server has agreed to, None if it has declined the offer."""
    values = [value for name, value in fields if name == "sec-websocket-extensions"]
    if not values:
        return None
    assert offer, "an extension that was not offered"
    (value,) = values
    name, *parameters = [part.strip() for part in value.split(";")]
    assert name == "permessage-deflate"
    pairs = [part.partition("=")[::2] for part in parameters]
    agreed = dict(pairs)
    assert len(agreed) == len(pairs), "a parameter twice"
    known = {"server_no_context_takeover", "client_no_context_takeover"}
    bits = {"server_max_window_bits", "client_max_window_bits"}
    assert set(agreed) <= known | bits
    assert all(agreed[name].isdigit() and 8 <= int(agreed[name]) <= 15 for name in bits & set(agreed))
    assert "client_max_window_bits" not in agreed or "client_max_window_bits" in offer
    return agreed


class Response(NamedTuple):
    """The response to an upgrade. Names of fields are in lower case."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes = b""

    def field(self, name: str) -> str | None:
        """Return the value of a field, None if there is none."""
        return dict(self.fields).get(name)


def upgrade(path: str = "/", *fields: str, offer: str = "", host: str = "a.example") -> bytes:
    """Return the request of an opening handshake. `offer`: what extensions are offered."""
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {KEY}",
        *([f"Sec-WebSocket-Extensions: {offer}"] if offer else []),
        *fields,
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def accepts() -> str:
    """Return what a server must answer to KEY."""
    return base64.b64encode(hashlib.sha1(KEY.encode() + GUID).digest()).decode()


class Frames:
    """The frames of a stream of bytes, checked as those of a server."""

    def __init__(self, data: bytes = b"") -> None:
        self._buffer = bytearray(data)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> tuple[bool, int, int, bytes] | None:
        """Return the end bit, the reserved bits, the opcode and the payload of the next frame; None until it is
        complete."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, length = buffer[0], buffer[1]
        assert length < 0x80, "a server must not mask"
        start = 2
        if length > 125:
            form, start = ("!H", 4) if length == 126 else ("!Q", 10)
            if len(buffer) < start:
                return None
            (length,) = struct.unpack(form, buffer[2:start])
            assert length > (125 if start == 4 else 65535), "not the shortest form of a length"
        if len(buffer) < start + length:
            return None
        payload = bytes(memoryview(buffer)[start : start + length])
        del buffer[: start + length]
        return bool(first & 0x80), first >> 4 & 7, first & 15, payload


class Peer:
    """One connection of a client. Closing it does not say goodbye."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        # the client as the server's log calls it, and since when it is this one: a port is used again
        self.began = time.time()
        self.name = "{}:{}".format(*sock.getsockname())
        self.deflate: Deflate | None = None
        self.agreed: dict[str, str] | None = None
        self._frames = Frames()
        self._opcode = 0
        self._compressed = False
        self._parts: list[bytes] = []

    @classmethod
    def dial(cls, port: int, *, receive_buffer: int = 0) -> Self:
        """Connect, and send nothing. `receive_buffer`: bytes that the kernel keeps, 0 for its default."""
        sock = socket.socket()
        try:
            if receive_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.settimeout(PATIENCE)
            sock.connect(("127.0.0.1", port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    @classmethod
    def open(cls, port: int, path: str = "/", *fields: str, offer: str = "", receive_buffer: int = 0) -> Self:
        """Connect, and check that the upgrade is accepted."""
        peer = cls.dial(port, receive_buffer=receive_buffer)
        try:
            response = peer.ask(upgrade(path, *fields, offer=offer))
            assert response.status == 101, response
            peer.agreed = agreed_deflate(response.fields, offer)
            peer.deflate = None if peer.agreed is None else Deflate(peer.agreed)
        except BaseException:
            peer.socket.close()
            raise
        peer.response = response
        return peer

    response: Response

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: bytes) -> Response:
        """Send a request and return the response. One that is no upgrade ends with the connection, or by its length."""
        self.socket.sendall(request)
        received = bytearray()
        while b"\r\n\r\n" not in received:
            data = self.socket.recv(65536)
            assert data, f"the response is cut: {bytes(received)!r}"
            received += data
        head, _, rest = bytes(received).partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.partition(":") for line in lines]
        fields = [(name.lower(), value.strip()) for name, _, value in pairs]
        status = int(first.split(" ")[1])
        if status == 101:
            found = dict(fields)
            assert found["upgrade"].lower() == "websocket"
            assert "upgrade" in found["connection"].lower()
            assert found["sec-websocket-accept"] == accepts()
            assert "content-length" not in found
            assert "transfer-encoding" not in found
            self._frames.feed(rest)
            return Response(status, fields)
        return Response(status, fields, self._body(dict(fields), rest))

    def _body(self, fields: dict[str, str], body: bytes) -> bytes:
        if "content-length" in fields:
            while len(body) < int(fields["content-length"]) and (data := self.socket.recv(65536)):
                body += data
            assert len(body) == int(fields["content-length"])
            return body
        while not body.endswith(b"0\r\n\r\n") and (data := self.socket.recv(65536)):
            body += data
        if fields.get("transfer-encoding") == "chunked":
            return _dechunked(body)
        return body

    # sending

    def send(self, data: bytes, chop: int = 0) -> None:
        """Send bytes, `chop` at a time if that is not 0. A server that no longer listens is no error: what it has said
        before is to be received."""
        with suppress(ConnectionResetError, BrokenPipeError):
            if not chop:
                self.socket.sendall(data)
                return
            for start in range(0, len(data), chop):
                self.socket.sendall(data[start : start + chop])

    def pour(self, data: bytes, most: int, patience: float = 0.3) -> int:
        """Send `data` again and again, and read nothing, until the server takes no more for `patience` seconds or has
        closed, or has taken `most` bytes. Return how many it has taken."""
        poured = 0
        self.socket.settimeout(patience)
        try:
            while poured < most:
                poured += self.socket.send(data[poured % len(data) :])
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            return poured
        finally:
            self.socket.settimeout(PATIENCE)
        return poured

    def text(self, data: str | bytes) -> None:
        """Send a text, compressed if that was agreed."""
        self.message(TEXT, data.encode() if isinstance(data, str) else data)

    def binary(self, data: bytes) -> None:
        """Send bytes, compressed if that was agreed."""
        self.message(BINARY, data)

    def message(self, opcode: int, data: bytes, size: int = 0) -> None:
        """Send a message, in frames of `size` bytes if that is not 0."""
        rsv = 0
        if self.deflate is not None:
            data, rsv = self.deflate.compress(data), 4
        size = size or len(data) or 1
        pieces = [data[start : start + size] for start in range(0, len(data), size)] or [b""]
        self.send(fragments(opcode, *pieces, rsv=rsv))

    def reset(self) -> None:
        """Vanish: close with an RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # receiving

    def event(self) -> Event:
        """Return what comes next. Raise TimeoutError if nothing does."""
        while True:
            found = self._frames.next()
            if found is None:
                try:
                    data = self.socket.recv(262144)
                except (ConnectionResetError, BrokenPipeError):
                    return RESET
                if not data:
                    return FIN
                self._frames.feed(data)
                continue
            if (event := self._event(*found)) is not None:
                return event

    def events(self) -> list[Event]:
        """Return all that comes until the connection ends, and how it ends."""
        found = [self.event()]
        while found[-1] not in ENDS:
            found.append(self.event())
        return found

    def end(self) -> list[Event]:
        """Return all that comes until the server closes the websocket or the connection, answer a close, and return how
        the connection ends."""
        found = [self.event()]
        while found[-1] not in ENDS and found[-1].kind != "close":
            found.append(self.event())
        if found[-1] in ENDS:
            return found
        self.send(closing(None if found[-1].code == NO_CODE else found[-1].code))
        return found + self.events()

    def close(self, code: int | None = 1000, reason: bytes = b"") -> list[Event]:
        """Close, and return all that comes until the connection ends."""
        self.send(closing(code, reason))
        return self.events()

    def _event(self, fin: bool, rsv: int, opcode: int, payload: bytes) -> Event | None:
        assert opcode in (CONTINUATION, *KINDS), f"a reserved opcode: {opcode}"
        if opcode >= 8:
            assert fin, "a control frame in fragments"
            assert len(payload) <= 125, "a control frame of more than 125 bytes"
            assert not rsv, "a reserved bit in a control frame"
            return _closed(payload) if opcode == CLOSE else Event(KINDS[opcode], payload)
        if opcode == CONTINUATION:
            assert self._opcode, "a continuation of nothing"
            assert not rsv, "a reserved bit in a continuation"
        else:
            assert not self._opcode, "a message within a message"
            assert rsv == 0 or (rsv == 4 and self.deflate is not None), f"reserved bits: {rsv}"
            self._opcode, self._compressed = opcode, rsv == 4
        self._parts.append(payload)
        return self._message() if fin else None

    def _message(self) -> Event:
        data = b"".join(self._parts)
        if self._compressed and self.deflate is not None:
            data = self.deflate.decompress(data)
        kind = KINDS[self._opcode]
        self._opcode, self._parts = 0, []
        if kind == "text":
            data.decode()
        return Event(kind, data)


def _closed(payload: bytes) -> Event:
    if not payload:
        return Event("close", code=NO_CODE)
    assert len(payload) >= 2, "a close with half a code"
    (code,) = struct.unpack("!H", payload[:2])
    assert 1000 <= code <= 1014 or 3000 <= code <= 4999, f"close code {code}"
    assert code not in (1004, 1005, 1006), f"close code {code}"
    payload[2:].decode()
    return Event("close", payload[2:], code)


def _dechunked(body: bytes) -> bytes:
    found = b""
    while body:
        length, _, body = body.partition(b"\r\n")
        size = int(length, 16)
        found, body = found + body[:size], body[size + 2 :]
    return found


@contextmanager
def growth(pid: int) -> Iterator[list[int]]:
    """Give a list in which, after the block, is by how many bytes the memory of a process has grown at its peak."""
    grown: list[int] = []
    # resets the peak to what is used now (proc(5))
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    before = _peak(pid)
    yield grown
    grown.append(_peak(pid) - before)


def _peak(pid: int) -> int:
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
