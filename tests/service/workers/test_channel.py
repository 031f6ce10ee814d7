"""Frames between processes, and a supervisor's end that never blocks."""

from __future__ import annotations

import os
import selectors
import socket
from array import array
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlined.service.workers import channel as module
from deadlined.service.workers.channel import Channel
from deadlined.service.workers.frames import ASK, MOST_DESCRIPTORS, TELL, Frames, frame


@given(st.lists(st.tuples(st.sampled_from([ASK, TELL]), st.binary(max_size=300))), st.integers(1, 50))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sent: list[tuple[bytes, bytes]], size: int) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in sent)
    frames = Frames()
    received = [one for at in range(0, len(stream), size) for one in frames.feed(stream[at : at + size])]
    assert received == sent


def test_a_length_that_no_frame_has_is_an_error() -> None:
    with pytest.raises(ValueError, match="frame"):
        Frames().feed(b"r\xff\xff\xff\xff")


class End:
    """A channel, what it has delivered, and the other end."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        ours, self.theirs = socket.socketpair()
        self.theirs.settimeout(10)
        self.delivered: list[tuple[bytes, bytes]] = []
        self.selector = selector
        self.channel = Channel(ours, selector, lambda kind, payload: self.delivered.append((kind, payload)))

    def turn(self) -> None:
        """Do what is possible now."""
        for key, mask in self.selector.select(0):
            key.data(mask)

    @property
    def watched(self) -> int:
        return len(self.selector.get_map())


@pytest.fixture
def end() -> Iterator[End]:
    with selectors.DefaultSelector() as selector:
        found = End(selector)
        yield found
        found.theirs.close()
        found.channel.close()


def test_frames_go_both_ways(end: End) -> None:
    end.channel.send(ASK, b"how are you?")
    assert Frames().feed(end.theirs.recv(100)) == [(ASK, b"how are you?")]
    end.theirs.sendall(frame(TELL, b"well") + frame(TELL)[:3])
    end.turn()
    assert end.delivered == [(TELL, b"well")]
    end.theirs.sendall(frame(TELL)[3:])
    end.turn()
    assert end.delivered == [(TELL, b"well"), (TELL, b"")]


def test_what_the_other_end_does_not_read_waits_and_arrives(end: End) -> None:
    large = bytes(3_000_000)
    end.channel.send(ASK, large)
    end.channel.send(ASK, b"last")
    frames, received = Frames(), list[tuple[bytes, bytes]]()
    while len(received) < 2:
        end.turn()
        received += frames.feed(end.theirs.recv(1_000_000))
    assert received == [(ASK, large), (ASK, b"last")]
    # nothing is left to send: an event loop that asked for room would spin
    assert end.selector.select(0) == []


def test_one_that_never_reads_takes_a_bounded_amount(end: End, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PENDING", 1_000_000)
    for number in range(100):
        end.channel.send(ASK, b"%d" % number + bytes(100_000))
    frames, received = Frames(), list[tuple[bytes, bytes]]()
    end.theirs.setblocking(False)
    try:
        while True:
            end.turn()
            received += frames.feed(end.theirs.recv(1_000_000))
    except BlockingIOError:
        pass
    # whole frames, without a gap, and not all of them
    assert [payload.rstrip(b"\0") for _, payload in received] == [b"%d" % number for number in range(len(received))]
    assert 10 <= len(received) < 30


@pytest.mark.parametrize("last", [b"", frame(TELL, b"half")[:7], b"r\xff\xff\xff\xffnonsense"])
def test_half_a_frame_and_nonsense_end_it(last: bytes, end: End) -> None:
    end.theirs.sendall(frame(TELL, b"whole") + last)
    end.theirs.close()
    end.turn()
    end.turn()
    assert end.delivered[:1] in ([(TELL, b"whole")], [])
    assert len(end.delivered) <= 1
    assert end.watched == 0
    end.channel.send(ASK, b"ignored")


def test_a_close_delivers_what_has_arrived(end: End) -> None:
    end.theirs.sendall(frame(TELL, b"1") + frame(TELL, b"2"))
    end.theirs.close()
    end.channel.close()
    assert end.delivered == [(TELL, b"1"), (TELL, b"2")]
    assert end.watched == 0


def test_a_release_leaves_the_selector_as_it_is(end: End) -> None:
    end.channel.release()
    assert end.watched == 1
    end.selector.unregister(next(iter(end.selector.get_map())))


# descriptors


def descriptors(data: list[tuple[int, int, bytes]]) -> list[int]:
    found = array("i")
    for _, _, payload in data:
        found.frombytes(payload)
    return list(found)


def test_descriptors_come_with_their_frame_also_when_the_other_end_lags(end: End) -> None:
    pipes = [os.pipe() for _ in range(3)]
    try:
        end.channel.send(ASK, b"x" * 5_000_000)
        for number, (reader, _) in enumerate(pipes):
            end.channel.send(TELL, b"%d" % number, [reader])
            end.channel.send(ASK, b"without")
        frames = Frames()
        received: list[tuple[bytes, bytes]] = []
        came: list[int] = []
        while len(received) < 7:
            end.turn()
            data, ancillary, _, _ = end.theirs.recvmsg(65536, socket.CMSG_SPACE(1000))
            came += descriptors(ancillary)
            received += frames.feed(data)
            # those of a frame are there when it is complete
            assert len(came) >= sum(kind == TELL for kind, _ in received)
        assert [payload for kind, payload in received if kind == TELL] == [b"0", b"1", b"2"]
        for found, (reader, _) in zip(came, pipes, strict=True):
            assert os.path.sameopenfile(found, reader)
            os.close(found)
    finally:
        for reader, writer in pipes:
            os.close(reader)
            os.close(writer)


def test_descriptors_come_once_if_their_frame_is_sent_in_parts(end: End) -> None:
    pipes = os.pipe()
    frames, received, came = Frames(), list[tuple[bytes, bytes]](), list[int]()
    try:
        end.channel.send(TELL, bytes(5_000_000), [pipes[0]])
        while not received:
            end.turn()
            data, ancillary, _, _ = end.theirs.recvmsg(65536, socket.CMSG_SPACE(1000))
            came += descriptors(ancillary)
            received += frames.feed(data)
        assert len(came) == 1
    finally:
        for descriptor in (*came, *pipes):
            os.close(descriptor)


@pytest.mark.parametrize("number", [MOST_DESCRIPTORS, MOST_DESCRIPTORS + 1, 2 * MOST_DESCRIPTORS + 1])
def test_a_frame_may_have_more_descriptors_than_a_message(number: int, end: End) -> None:
    pipes = os.pipe()
    sent = [pipes[at % 2] for at in range(number)]
    frames, received, came = Frames(), list[tuple[bytes, bytes]](), list[int]()
    try:
        end.channel.send(ASK, b"before")
        end.channel.send(TELL, b"with", sent)
        end.channel.send(ASK, b"behind")
        while len(received) < 3:
            data, ancillary, _, _ = end.theirs.recvmsg(65536, socket.CMSG_SPACE(4 * MOST_DESCRIPTORS))
            came += descriptors(ancillary)
            received += frames.feed(data)
            assert len(came) == number or (TELL, b"with") not in received
        assert received == [(ASK, b"before"), (TELL, b"with"), (ASK, b"behind")]
        assert [os.path.sameopenfile(found, pipes[at % 2]) for at, found in enumerate(came)] == [True] * number
        assert end.watched == 1
    finally:
        for descriptor in (*came, *pipes):
            os.close(descriptor)


# what cannot be sent


@pytest.mark.parametrize("gone", [True, False], ids=["it is gone", "nothing else can be sent"])
def test_an_error_ends_both_ends_and_is_logged_unless_the_other_is_gone(
    gone: bool, end: End, caplog: pytest.LogCaptureFixture
) -> None:
    if gone:
        end.theirs.shutdown(socket.SHUT_RDWR)
        end.channel.send(ASK, b"this")
    else:
        # a descriptor that is not open
        end.channel.send(ASK, b"this", [1_000_000])
    assert end.theirs.recv(100) == b""
    assert end.watched == 0
    assert [record.levelname for record in caplog.records] == ([] if gone else ["ERROR"])
