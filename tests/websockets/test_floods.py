"""Clients that send too much: the memory of the server stays bounded, and the next client is served meanwhile."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache

import pytest

from tests.applications.running import Server
from tests.support.command import PATIENCE
from tests.support.websocket_peer import (
    BINARY,
    CONTINUATION,
    ENDS,
    PING,
    PONG,
    TEXT,
    Event,
    Peer,
    closing,
    frame,
    growth,
)

from .running import reason_of

MIB = 1 << 20
LARGEST = 16 * MIB

# the rules of frames are the same on every event loop; what is read and sent is not
on_one_loop = pytest.mark.parametrize("loop", ["trio"], indirect=True)


@pytest.fixture(autouse=True)
def next_client_is_served(server: Server) -> Iterator[None]:
    yield
    serve(server)


def serve(server: Server) -> None:
    """Check that another client is served."""
    with Peer.open(server.port, "/echo") as peer:
        peer.text("next")
        assert peer.event() == Event("text", b"next")


def test_pings_whose_answers_nobody_reads(server: Server) -> None:
    pings = frame(PING, b"p" * 125) * 500
    with growth(server.process.pid) as grown, Peer.open(server.port, "/echo", receive_buffer=4096) as peer:
        assert peer.pour(pings, 20 * MIB, PATIENCE) >= 20 * MIB, "the server reads on"
        serve(server)
        # what fitted into the buffers, and the answer to the latest
        peer.send(frame(PING, b"last"))
        while peer.event() != Event("pong", b"last"):
            pass
    assert grown[0] < 8 * MIB


def test_pongs_that_nobody_has_asked_for(server: Server) -> None:
    with growth(server.process.pid) as grown, Peer.open(server.port, "/echo") as peer:
        assert peer.pour(frame(PONG, b"p" * 125) * 500, 10 * MIB, PATIENCE) >= 10 * MIB
        peer.text("a")
        assert peer.event() == Event("text", b"a")
    assert grown[0] < 8 * MIB


@pytest.mark.parametrize("payload", [b"", b"a", b"a" * 1000])
def test_messages_that_the_application_does_not_receive(server: Server, payload: bytes) -> None:
    messages = frame(TEXT, payload) * (64 * 1024 // (len(payload) + 6))
    with growth(server.process.pid) as grown, Peer.open(server.port, "/deaf") as peer:
        assert peer.event() == Event("text", b"deaf")
        # the server reads no more than it can keep
        assert peer.pour(messages, 100 * MIB) < 20 * MIB
        serve(server)
    assert grown[0] < 16 * MIB


def test_a_reader_that_stalls_holds_no_memory(server: Server) -> None:
    with growth(server.process.pid) as grown, Peer.open(server.port, "/push", receive_buffer=4096):
        for _ in range(20):
            serve(server)
    assert grown[0] < 8 * MIB


@on_one_loop
def test_echoes_that_nobody_reads_hold_back_their_client(server: Server) -> None:
    messages = frame(BINARY, bytes(64 * 1024))
    with growth(server.process.pid) as grown, Peer.open(server.port, "/echo", receive_buffer=4096) as peer:
        assert peer.pour(messages, 200 * MIB) < 50 * MIB
        serve(server)
    assert grown[0] < 16 * MIB


@on_one_loop
def test_empty_fragments_without_an_end(server: Server) -> None:
    with growth(server.process.pid) as grown, Peer.open(server.port, "/echo") as peer:
        peer.send(frame(TEXT, b"", fin=False))
        empty = frame(CONTINUATION, b"", fin=False) * 10_000
        for _ in range(20):
            peer.send(empty)
        close, end = peer.end()
        assert (close.code, end in ENDS) == (1008, True)
    assert reason_of(server, peer) == "protocol_error"
    assert grown[0] < 8 * MIB


@on_one_loop
def test_a_message_in_fragments_of_one_byte_takes_its_bytes(server: Server) -> None:
    with growth(server.process.pid) as grown, Peer.open(server.port, "/digest") as peer:
        peer.send(frame(BINARY, b"a", fin=False) + frame(CONTINUATION, b"a", fin=False) * 50_000)
        peer.send(frame(CONTINUATION, b"a"))
        assert peer.event().data.startswith(b"binary 50002 ")
    assert grown[0] < 8 * MIB


def test_a_message_of_the_largest_size_and_one_that_is_larger(server: Server) -> None:
    with Peer.open(server.port, "/digest") as peer:
        peer.binary(bytes(LARGEST))
        assert peer.event().data.startswith(b"binary %d " % LARGEST)
    with growth(server.process.pid) as grown, Peer.open(server.port, "/digest") as peer:
        # the length alone says so
        peer.send(frame(BINARY, b"", length=LARGEST + 1))
        close, end = peer.end()
        assert (close.code, end in ENDS) == (1009, True)
    assert reason_of(server, peer) == "message_too_large"
    with Peer.open(server.port, "/digest") as peer:
        peer.send(frame(BINARY, bytes(LARGEST // 2), fin=False))
        peer.send(frame(CONTINUATION, b"", length=LARGEST // 2 + 1))
        assert peer.end()[0].code == 1009
    assert grown[0] < 4 * MIB


@cache
def bomb(size: int) -> bytes:
    """Return a payload that inflates to this many bytes."""
    compressor = zlib.compressobj(9, wbits=-12)
    pieces = [compressor.compress(bytes(MIB)) for _ in range(size // MIB)]
    return b"".join(pieces) + compressor.flush(zlib.Z_SYNC_FLUSH)[:-4]


DEFLATE = "permessage-deflate; client_max_window_bits"


@pytest.mark.parametrize("frames", [1, 50])
def test_a_bomb_is_inflated_to_the_limit_only(server: Server, frames: int) -> None:
    payload = bomb(64 * MIB)
    size = len(payload) // frames + 1
    pieces = [payload[start : start + size] for start in range(0, len(payload), size)]
    for _ in range(3):
        with growth(server.process.pid) as grown, Peer.open(server.port, "/digest", offer=DEFLATE) as peer:
            for number, piece in enumerate(pieces):
                last = number == len(pieces) - 1
                opcode, rsv = (CONTINUATION, 0) if number else (BINARY, 4)
                peer.send(frame(opcode, piece, fin=last, rsv=rsv))
            close, *_ = peer.end()
            assert (close.kind, close.code) == ("close", 1009)
            assert reason_of(server, peer) == "message_too_large"
        # as far as it may go, twice while its pieces are joined
        assert grown[0] < 3.5 * LARGEST


def test_many_bombs_for_an_application_that_does_not_receive(server: Server) -> None:
    message = frame(BINARY, bomb(LARGEST), rsv=4)
    with growth(server.process.pid) as grown, Peer.open(server.port, "/deaf", offer=DEFLATE) as peer:
        assert peer.event().kind == "text"
        peer.pour(message, 100 * len(message))
        serve(server)
        peer.reset()
    # four came together in one read of 64 KiB, and of the last the pieces were joined
    assert len(message) > 64 * 1024 // 5
    assert grown[0] < 5.5 * LARGEST


def test_what_comes_after_a_close_is_not_read_for_ever(server: Server) -> None:
    with growth(server.process.pid) as grown, Peer.open(server.port, "/echo") as peer:
        peer.send(closing())
        assert peer.pour(frame(TEXT, b"a" * 1000) * 60, 50 * MIB) < 50 * MIB
    assert grown[0] < 8 * MIB


@pytest.mark.parametrize("data", [b"\xff\xff" * 50_000, b"GET / HTTP/1.1\r\n\r\n" * 5000, bytes(100_000)])
def test_a_stream_that_is_no_websocket(server: Server, data: bytes) -> None:
    with Peer.open(server.port, "/echo") as peer:
        peer.send(data)
        found = peer.end()
        assert found[0] in ENDS or found[0].code == 1002
    assert reason_of(server, peer) in ("protocol_error", "client_reset")
