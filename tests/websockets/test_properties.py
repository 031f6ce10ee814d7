"""Properties: any segmentation of a valid stream gives the same messages, any garbage ends in a close or a reset."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.applications.running import Server
from tests.support.examples import examples
from tests.support.websocket_peer import (
    BINARY,
    CONTINUATION,
    ENDS,
    FIN,
    PING,
    TEXT,
    Deflate,
    Event,
    Peer,
    closing,
    descriptors,
    frame,
    upgrade,
)

OFFER = "permessage-deflate"

payloads = st.one_of(st.binary(max_size=300), st.integers(0, 70_000).map(bytes))
texts = st.text(max_size=200)


@dataclass(frozen=True)
class Said:
    """A message of a client: cut into fragments, with pings between them."""

    data: str | bytes
    cuts: tuple[int, ...]
    pings: tuple[bytes, ...]

    @property
    def opcode(self) -> int:
        return TEXT if isinstance(self.data, str) else BINARY

    @property
    def payload(self) -> bytes:
        return self.data.encode() if isinstance(self.data, str) else self.data

    def frames(self, deflate: Deflate | None) -> bytes:
        """Return the message as it is sent."""
        payload, rsv = (self.payload, 0) if deflate is None else (deflate.compress(self.payload), 4)
        ends = [0, *sorted(min(cut, len(payload)) for cut in self.cuts), len(payload)]
        found = []
        for number in range(len(ends) - 1):
            last = number == len(ends) - 2
            opcode, bits = (CONTINUATION, 0) if number else (self.opcode, rsv)
            found.append(frame(opcode, payload[ends[number] : ends[number + 1]], fin=last, rsv=bits))
            if not last:
                found += [frame(PING, ping) for ping in self.pings]
        return b"".join(found)

    @property
    def echo(self) -> Event:
        return Event("text" if self.opcode == TEXT else "binary", self.payload)

    @property
    def pongs(self) -> list[Event]:
        return [Event("pong", ping) for _ in self.cuts for ping in self.pings]


said = st.builds(
    Said,
    st.one_of(texts, payloads),
    st.lists(st.integers(0, 400), max_size=3).map(tuple),
    st.lists(st.binary(max_size=125), max_size=2).map(tuple),
)


def segments(data: bytes, cuts: list[float]) -> list[bytes]:
    """Return `data` in pieces. `cuts` are parts of its length."""
    ends = [0, *sorted(int(cut * len(data)) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in pairwise(ends) if begin < end]


@settings(max_examples=examples(100))
@given(st.lists(said, max_size=4), st.lists(st.floats(0, 1), max_size=6), st.booleans(), st.booleans())
def test_any_segmentation_gives_the_same_messages(
    server: Server, messages: list[Said], cuts: list[float], compressed: bool, early: bool
) -> None:
    with Peer.dial(server.port) as peer:
        head = upgrade("/echo", offer=OFFER if compressed else "")
        # a client that has not seen the response knows of no extension
        deflate = Deflate({}) if compressed and not early else None
        stream = b"".join(message.frames(deflate) for message in messages)
        if early:
            assert peer.ask(head + stream).status == 101
            peer.deflate = Deflate({"server_max_window_bits": "15"}) if compressed else None
        else:
            response = peer.ask(head)
            assert response.status == 101
            peer.deflate = Deflate({}) if compressed else None
            for segment in segments(stream, cuts):
                peer.send(segment)
                # let the server read it before more comes, mostly
                time.sleep(0.0003)
        expected = [message.echo for message in messages]
        pongs = [pong for message in messages for pong in message.pongs]
        found = [peer.event() for _ in range(len(expected) + len(pongs))]
        assert [event for event in found if event.kind != "pong"] == expected
        assert [event for event in found if event.kind == "pong"] == pongs
        assert peer.close(4000) == [Event("close", b"", 4000), FIN]


# frames of which some are valid, and some are not
almost = st.builds(
    frame,
    st.integers(0, 15),
    st.one_of(st.binary(max_size=130), st.just(bytes(70_000))),
    fin=st.booleans(),
    rsv=st.sampled_from([0, 0, 0, 4, 1, 7]),
    mask=st.one_of(st.just(b"\0\0\0\0"), st.binary(min_size=4, max_size=4), st.none()),
    length=st.one_of(st.none(), st.integers(0, 200), st.integers(0, 2**64 - 1)),
    wide=st.sampled_from([0, 0, 2, 8]),
)
garbage = st.one_of(
    st.binary(max_size=200), st.lists(almost, max_size=5).map(b"".join), st.tuples(almost, st.binary()).map(b"".join)
)


@settings(max_examples=examples(200))
@given(garbage, st.booleans(), st.sampled_from(["half-close", "reset", "close", "vanish"]))
def test_any_garbage_ends_in_a_close_or_a_reset(server: Server, data: bytes, compressed: bool, end: str) -> None:
    with Peer.open(server.port, "/echo") as witness:
        witness.text("before")
        assert witness.event() == Event("text", b"before")
        before = descriptors(server.process.pid)
        with Peer.open(server.port, "/echo", offer=OFFER if compressed else "") as peer:
            peer.send(data)
            if end == "reset":
                peer.reset()
            elif end != "vanish":
                if end == "close":
                    peer.send(closing())
                peer.socket.shutdown(socket.SHUT_WR)
                assert peer.events()[-1] in ENDS
        # nothing is left of it, and others are served
        while descriptors(server.process.pid) > before:
            time.sleep(0.001)
        witness.text("after")
        assert witness.event() == Event("text", b"after")


@settings(max_examples=examples(100))
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.booleans())
def test_any_bytes_as_a_text_are_echoed_or_closed_with_1007(
    server: Server, pieces: list[bytes], compressed: bool
) -> None:
    data = b"".join(pieces)
    try:
        data.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    with Peer.open(server.port, "/echo", offer=OFFER if compressed else "") as peer:
        if compressed:
            peer.message(TEXT, data, size=max(1, len(data) // len(pieces)))
        else:
            last = len(pieces) - 1
            for number, piece in enumerate(pieces):
                peer.send(frame(CONTINUATION if number else TEXT, piece, fin=number == last))
        if valid:
            assert peer.event() == Event("text", data)
        else:
            close, end = peer.end()
            assert (close.kind, close.code, end in ENDS) == ("close", 1007, True)
