"""Frames that are read beside the library `websockets` give what that library alone would give, at the same byte."""

from __future__ import annotations

import codecs
import itertools
import random
import struct
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from deadlined.http.wire.frames import Frames
from deadlined.http.wire.response import LARGE
from deadlined.http.wire.splitter import ENDLESS, Splitter
from tests.support.examples import examples
from tests.support.websocket import BINARY, CLOSE, CONT, PING, PONG, TEXT, closing, deflated, frame

MOST = 400
MOST_OF_FRAME = 300

SNOW = "\N{SNOWMAN}".encode()


def protocol_of(compressed: bool, most: int | None = MOST, most_of_frame: int | None = MOST_OF_FRAME) -> Any:
    """Return the library's protocol, with permessage-deflate or without."""
    protocol = ServerProtocol(state=OPEN, max_size=(most, most_of_frame))
    if compressed:
        protocol.extensions = [PerMessageDeflate(False, False, 12, 12)]
    return protocol


def frames_of(protocol: Any, compressed: bool = False, most: int = min(MOST, MOST_OF_FRAME)) -> Frames:
    return Frames(protocol, "", "permessage-deflate" if compressed else "", [], most)


@dataclass
class Seen:
    """What a peer's bytes have led to. `ended`: (code, reason) of the peer's close and of our failure."""

    messages: list[str | bytes] = field(default_factory=list)
    sent: bytes = b""
    ended: tuple[Any, Any] = (None, None)


class Ours:
    """`Frames`, and what they make of bytes."""

    def __init__(self, compressed: bool) -> None:
        self.frames = frames_of(protocol_of(compressed), compressed)
        self.seen = Seen()

    def feed(self, data: bytes) -> None:
        seen, frames = self.seen, self.frames
        seen.messages += frames.feed(data)
        seen.sent += b"".join(frames.data_to_send())
        seen.ended = (frames.peer_closed, frames.failed)


class Library:
    """`websockets` alone, with a check of texts, which it leaves to its users."""

    def __init__(self, compressed: bool) -> None:
        self.protocol = protocol_of(compressed)
        self.seen = Seen()
        self._text: Any = None
        self._whole = b""

    def feed(self, data: bytes, unlimited: bool) -> None:
        """Read `data`, which is of one frame, under the limits of messages unless `unlimited`."""
        if self.seen.ended != (None, None):
            return
        protocol = self.protocol
        limits = (None, None) if unlimited else (MOST, MOST_OF_FRAME)
        protocol.max_message_size, protocol.max_fragment_size = limits
        protocol.receive_data(data)
        closed = None
        for event in protocol.events_received():
            if event.opcode is Opcode.CLOSE:
                closed = (protocol.close_rcvd.code, protocol.close_rcvd.reason)
            elif event.opcode not in (Opcode.PING, Opcode.PONG) and not self._add(event):
                break
        failed = None
        if protocol.parser_exc is not None:
            failed = (protocol.close_sent.code, protocol.close_sent.reason)
        self.seen.ended = (closed, failed)
        self.seen.sent += b"".join(protocol.data_to_send())

    def _add(self, event: Any) -> bool:
        if event.opcode is not Opcode.CONT:
            self._text = codecs.getincrementaldecoder("utf-8")() if event.opcode is Opcode.TEXT else None
            self._whole = b""
        self._whole += event.data
        try:
            if self._text is not None:
                self._text.decode(event.data, event.fin)
        except UnicodeDecodeError as error:
            self.protocol.fail(1007, error.reason)
            self.protocol.parser_exc = error
            return False
        if event.fin:
            self.seen.messages.append(self._whole if self._text is None else self._whole.decode())
        return True


payloads = st.one_of(st.binary(max_size=40), st.integers(0, MOST + 20).map(bytes), st.sampled_from([SNOW, SNOW[:2]]))
frames_of_a_client = st.builds(
    frame,
    st.sampled_from([TEXT, TEXT, BINARY, BINARY, CONT, CONT, PING, PONG, CLOSE, 3, 11, 15]),
    payloads,
    fin=st.sampled_from([True, True, True, False]),
    rsv=st.sampled_from([0, 0, 0, 0, 0, 0, 4, 2, 1]),
    mask=st.sampled_from([b"\1\2\3\4"] * 8 + [bytes(4), b"\xff\0\0\0", b""]),
)
valid = st.one_of(
    st.builds(frame, st.just(TEXT), st.text(max_size=30).map(str.encode)),
    st.builds(frame, st.just(BINARY), st.integers(0, MOST_OF_FRAME).map(bytes)),
    st.builds(frame, st.sampled_from([PING, PONG]), st.binary(max_size=125)),
    st.builds(lambda text: frame(TEXT, deflated(text.encode()), rsv=4), st.text(max_size=30)),
    # more than a message may have, once it is inflated
    st.just(frame(BINARY, deflated(bytes(MOST_OF_FRAME + 1)), rsv=4)),
    st.just(b"\x81\xfe\x00\x01\1\2\3\4\x60"),  # a length of 1 in two bytes
    st.just(b"\x82\xff" + struct.pack("!Q", 2) + b"\1\2\3\4\0\0"),
)
single = st.one_of(valid, valid, frames_of_a_client, st.just(closing(1000))).map(lambda one: [one])
interleaved = st.builds(
    lambda one, control, two: [frame(BINARY, bytes(one), fin=False), control, frame(CONT, bytes(two))],
    st.integers(0, MOST // 2),
    st.builds(frame, st.sampled_from([PING, PONG]), st.binary(max_size=125)),
    st.integers(0, MOST // 2),
)
parts = st.lists(st.one_of(single, single, interleaved), max_size=8)
streams = parts.map(lambda lists: list(itertools.chain.from_iterable(lists)))


def is_control(one: bytes) -> bool:
    """Tell if `one` is a control frame of a valid length."""
    return one[0] & 15 in (CLOSE, PING, PONG) and one[1] & 0x7F <= 125


@settings(max_examples=examples(400))
@given(streams, st.lists(st.integers(1, 40), max_size=30), st.booleans())
def test_any_segmentation_gives_what_the_library_gives_frame_by_frame(
    stream: list[bytes], cuts: list[int], compressed: bool
) -> None:
    ours, library = Ours(compressed), Library(compressed)
    for one in stream:
        library.feed(one, is_control(one))
    data = b"".join(stream)
    for cut in [*cuts, len(data)]:
        ours.feed(data[:cut])
        data = data[cut:]
    failed = library.seen.ended[1]
    if failed is not None and failed[0] == 1007:
        # the library has read what came behind a piece of a text before the piece is found to be no UTF-8
        assert ours.seen.messages == library.seen.messages
        assert ours.frames.failed is not None
        return
    assert ours.seen == library.seen


@settings(max_examples=examples(200))
@given(streams, st.booleans())
def test_each_byte_has_the_effect_that_it_has_in_the_library(stream: list[bytes], compressed: bool) -> None:
    ours, library = Ours(compressed), Library(compressed)
    for one in stream:
        for at in range(len(one)):
            ours.feed(one[at : at + 1])
            library.feed(one[at : at + 1], is_control(one))
            assert ours.seen == library.seen, (one, at)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 1023, 1024, 65535, 65536, 70_000])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_a_message_of_any_size_is_read_from_any_two_segments(opcode: int, size: int) -> None:
    payload = bytes(i % 127 for i in range(size))
    expected: list[str | bytes] = [payload.decode() if opcode == TEXT else payload]
    data = frame(opcode, payload) + frame(PING, b"p") + frame(opcode, payload)
    length = len(frame(opcode, payload))
    for cut in {*range(min(16, length + 1)), length - 1, length, length + 1, length + 3, length + 9, len(data)}:
        frames = frames_of(protocol_of(False, None, None), most=ENDLESS)
        found = [*frames.feed(data[:cut]), *frames.feed(data[cut:])]
        assert found == expected * 2
        assert frames.data_to_send() == [frame(PONG, b"p", mask=b"")]
        assert not frames.incomplete


class Counting(ServerProtocol):
    """The library's protocol, and the bytes that it was given."""

    def __init__(self) -> None:
        super().__init__(state=OPEN, max_size=(MOST, MOST_OF_FRAME))
        self.given = b""

    def receive_data(self, data: bytes | bytearray) -> None:
        self.given += data
        super().receive_data(data)


@pytest.mark.parametrize(
    "theirs",
    [
        frame(PING, b"a"),
        frame(TEXT, b"a", fin=False) + frame(PING, b"") + frame(CONT, b"b"),
        frame(TEXT, b"a", rsv=4),
        frame(TEXT, bytes(MOST_OF_FRAME + 1)),
        frame(TEXT, b"a", mask=b""),
        frame(3, b"a"),
        frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"),
        closing(1000),
    ],
    ids=["ping", "pieces", "compressed", "too-long", "unmasked", "opcode", "message-in-a-message", "close"],
)
def test_only_whole_messages_are_kept_from_the_library(theirs: bytes) -> None:
    protocol = Counting()
    frames = frames_of(protocol)
    assert frames.feed(frame(TEXT, b"one") + theirs + frame(BINARY, b"two"))[0] == "one"
    # what follows an end is read by nobody
    rest = b"" if frames.failed is None and frames.peer_closed is None else protocol.given[len(theirs) :]
    assert protocol.given == theirs + rest


def test_what_follows_an_invalid_text_is_not_read() -> None:
    frames = frames_of(protocol_of(False))
    assert frames.feed(frame(TEXT, b"a") + frame(TEXT, b"\xff") + frame(TEXT, b"b") + frame(PING, b"")) == ["a"]
    assert frames.failed is not None and frames.failed[0] == 1007
    assert frames.feed(frame(TEXT, b"c") + closing(1000)) == []
    assert frames.peer_closed is None
    assert frames.data_to_send() == [b"\x88\x14\x03\xef" + b"invalid start byte"]


def test_nothing_is_held_between_messages() -> None:
    splitter = Splitter(ENDLESS, False)
    for piece in (frame(BINARY, bytes(70_000)), frame(TEXT, b"a") + frame(PING, b"b" * 100)):
        splitter.put(piece)
        while splitter.next(False):
            assert splitter.content
        assert splitter.content == b""
        assert not splitter.incomplete
    splitter.put(frame(BINARY, bytes(70_000)) + b"\x82")
    while splitter.next(False):
        pass
    assert splitter._data == b"\x82"


def test_an_announced_length_takes_no_memory() -> None:
    splitter = Splitter(ENDLESS, False)
    splitter.put(b"\x82\xff" + struct.pack("!Q", 1 << 62) + bytes(4) + b"abc")
    assert not splitter.next(False)
    kept: Any = splitter._payload
    assert kept == b"abc"


@pytest.mark.parametrize(
    "message", ["", "a", "x" * 125, "x" * 126, "é" * 300, "x" * 65535, "é" * 32768, b"", b"b" * 70_000]
)
def test_a_message_is_sent_as_the_library_sends_it(message: str | bytes) -> None:
    library = protocol_of(False)
    if isinstance(message, str):
        library.send_text(message.encode())
    else:
        library.send_binary(message)
    piece, large = frames_of(protocol_of(False)).message(message)
    assert [piece + large] == library.data_to_send()
    payload = message.encode() if isinstance(message, str) else message
    assert bool(large) == (len(payload) >= LARGE)
    if large and isinstance(message, bytes):
        assert large is message


@pytest.mark.parametrize(
    "message",
    ["x" * 70_000, b"x" * 70_000, "a", random.Random(1).randbytes(70_000)],
    ids=["text", "binary", "a", "noise"],
)
def test_a_message_is_compressed_if_that_was_agreed(message: str | bytes) -> None:
    library, frames = protocol_of(True), frames_of(protocol_of(True), True)
    for _ in range(2):
        if isinstance(message, str):
            library.send_text(message.encode())
        else:
            library.send_binary(message)
        piece, large = frames.message(message)
        assert piece[0] & 0x40
        assert [piece + large] == library.data_to_send()
        assert bool(large) == (len(piece + large) > LARGE)
        assert frames.data_to_send() == []
