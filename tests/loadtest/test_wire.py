"""Responses as the load test's clients count them."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("httptools", reason="the load test's extra is not installed: pip install .[bench]")

import httptools

from loadtest.line import Line
from loadtest.loop import Loop
from loadtest.target import Target
from loadtest.wire import Answers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def fed(*pieces: bytes) -> Answers:
    answers = Answers()
    for number, piece in enumerate(pieces):
        answers.feed(piece, float(number))
    return answers


def test_responses_are_counted_however_they_are_cut() -> None:
    whole = OK + OK.replace(b"200", b"404")
    for at in range(len(whole)):
        answers = fed(whole[:at], whole[at:])
        assert (answers.count, answers.status, answers.complete, answers.keeps_alive) == (2, 404, True, True)


def test_the_moment_is_that_of_the_end_of_the_head() -> None:
    assert fed(OK[:10], OK[10:30], OK[30:]).began == 2.0
    assert fed(OK[:10], OK[10:-1], OK[-1:]).began == 1.0


def test_an_interim_response_is_none() -> None:
    answers = fed(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert (answers.count, answers.complete) == (0, False)
    answers.feed(OK, 1.0)
    assert (answers.count, answers.status) == (1, 200)


def test_a_response_without_a_length_ends_with_its_connection() -> None:
    answers = fed(b"HTTP/1.1 200 OK\r\n\r\nsome")
    assert not answers.complete
    answers.end()
    assert (answers.complete, answers.count, answers.keeps_alive) == (True, 1, False)


def test_a_response_that_is_cut_short_is_not_complete() -> None:
    answers = fed(OK[:-1])
    answers.end()
    assert (answers.complete, answers.count) == (False, 0)


@pytest.mark.parametrize(
    ("before", "cut"),
    [
        (OK, b"HTTP/1.1 500 Internal"),
        (OK, b"HTTP/1.1 500 Internal Server Error\r\nX-Half"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Half"),
    ],
)
def test_a_head_that_is_cut_short_is_no_response(before: bytes, cut: bytes) -> None:
    answers = fed(before, cut)
    count = answers.count
    answers.end()
    assert (answers.complete, answers.count) == (False, count)


def test_a_connection_that_is_to_be_closed_is_told() -> None:
    assert not fed(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).keeps_alive


def test_what_follows_an_upgrade_is_kept() -> None:
    answers = fed(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x89\x02hi")
    assert (answers.upgraded, answers.rest, answers.status, answers.count) == (True, b"\x89\x02hi", 101, 1)
    answers.feed(b"\x89\x00", 1.0)
    assert answers.count == 1


def test_what_is_no_http_is_an_error() -> None:
    with pytest.raises(httptools.HttpParserError):
        fed(b"220 mail ESMTP\r\n")


def test_a_head_without_end_is_an_error() -> None:
    answers = fed(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
    with pytest.raises(httptools.HttpParserError, match="bytes"):
        for number in range(100):
            answers.feed(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, float(number))
    assert answers.size < 1 << 21


def test_responses_that_are_cut_in_their_heads_are_many_and_no_head_without_end() -> None:
    pipelined = OK * 1000
    answers = fed(OK[:10], *[pipelined[10:] + OK[:10]] * 50)
    assert answers.count == 50_000


class Flooded:
    """A socket from which there is always more to read."""

    def recv(self, size: int) -> bytes:
        return b"x" * size


class Reader(Line):
    """A connection that counts what it reads."""

    def __init__(self, loop: Loop) -> None:
        target = Target("http://a/", socket.AF_INET, ("127.0.0.1", 80), "a", "a", "/", tls=False)
        super().__init__(target, None, loop)
        self.received = 0

    def on_open(self, now: float) -> None:
        """Do nothing."""

    def on_events(self, mask: int, now: float, wrong: float) -> None:
        """Do nothing."""

    def on_trouble(self, kind: str, now: float) -> None:
        """Do nothing."""

    def on_data(self, data: bytes, now: float) -> None:
        """Count."""
        self.received += len(data)


def test_a_server_that_sends_faster_than_is_read_does_not_hold_the_loop() -> None:
    loop = Loop()
    reader = Reader(loop)
    reader._socket = Flooded()  # type: ignore[assignment]
    assert reader.read(0.0) is False
    assert reader.read_end(0.0) == ""
    loop.close()
    assert 0 < reader.received <= 4 << 20
