"""Bodies in chunks, as bytes alone: the grammar to the letter, in any pieces, and bounded in every sum."""

from __future__ import annotations

import itertools
import math
import re

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.http import BadRequest, Limits, Reason
from deadlined.http.wire.chunks import ChunkDecoder
from tests.support.examples import examples

LAST = b"0\r\n\r\n"


def decode(*pieces: bytes, limits: Limits | None = None) -> tuple[bytes, bytes]:
    """Return the data, and what follows the body. EOFError if the body is not complete."""
    decoder = ChunkDecoder(b"", limits or Limits())
    data = b""
    for number, piece in enumerate(pieces):
        decoder.feed(piece)
        while part := decoder.next_piece():
            data += part
        if part is not None:
            return data, decoder.unread() + b"".join(pieces[number + 1 :])
        assert decoder.held == 0
    raise EOFError


def by_byte(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def refused(data: bytes, limits: Limits | None = None) -> BadRequest:
    """Return how `data` is refused: the same at once and byte by byte, and at its last byte at the latest."""
    with pytest.raises(BadRequest) as at_once:
        decode(data, limits=limits)
    with pytest.raises(BadRequest) as piecemeal:
        decode(*by_byte(data), limits=limits)
    assert str(piecemeal.value) == str(at_once.value)
    assert (piecemeal.value.status, piecemeal.value.reason) == (at_once.value.status, at_once.value.reason)
    return at_once.value


VALID: dict[str, tuple[bytes, bytes]] = {
    "nothing": (LAST, b""),
    "several zeros": (b"0000\r\n\r\n", b""),
    "both cases of letters": (b"a\r\n0123456789\r\nB\r\n0123456789a\r\n" + LAST, b"01234567890123456789a"),
    "leading zeros": (b"0000000000000003\r\nabc\r\n" + LAST, b"abc"),
    "line ends as data": (b"4\r\n\r\n\r\n\r\n" + LAST, b"\r\n\r\n"),
    "an extension": (b"1;a\r\nx\r\n" + LAST, b"x"),
    "an extension with a token": (b"1;a=b\r\nx\r\n" + LAST, b"x"),
    "an extension in quotes": (b'1;a="b c\t\xe4;\\"\\\\"\r\nx\r\n' + LAST, b"x"),
    "an empty string in quotes": (b'1;a=""\r\nx\r\n' + LAST, b"x"),
    "several extensions": (b'1;a;b=c;d="e";f\r\nx\r\n' + LAST, b"x"),
    "whitespace around the signs": (b'1 \t; a \t=\t b ; c = "d" ;e\r\nx\r\n' + LAST, b"x"),
    "an extension of the last chunk": (b"0;a=b\r\n\r\n", b""),
    "trailers": (b"1\r\nx\r\n0\r\na: b\r\nc:\r\nd: \t\xe4 \t\r\n\r\n", b"x"),
}


@pytest.mark.parametrize(("body", "data"), VALID.values(), ids=VALID.keys())
def test_everything_in_the_grammar_is_decoded(body: bytes, data: bytes) -> None:
    assert decode(body + b"GET /") == (data, b"GET /")
    assert decode(*by_byte(body + b"GET /")) == (data, b"GET /")


# each is refused at its last byte
MALFORMED: dict[str, bytes] = {
    "no size": b"\r",
    "a letter that is no digit": b"g",
    "a sign": b"+",
    "a leading space": b" ",
    "0x": b"0x",
    "an underscore": b"1_",
    "a space behind the size": b"1 \r",
    "a tab behind the size": b"1\t\r",
    "bare LF behind the size": b"1\n",
    "bare CR behind the size": b"1\r1",
    "two CRs": b"1\r\r",
    "an extension without a name": b"1;\r",
    "an extension of equals": b"1;=",
    "an extension without a value": b"1;a=\r",
    "two names": b"1;a b",
    "two values": b"1;a=b c",
    "two equals": b"1;a=b=",
    "a space at the end of a name": b"1;a \r",
    "a space at the end of a value": b"1;a=b \r",
    "a space at the end of a string": b'1;a="b" \r',
    "an open quote": b'1;a="b\r',
    "an open quote behind an escape": b'1;a="b\\"\r',
    "an escaped line end": b'1;a="\\\r',
    "a quote inside a value": b'1;a=b"',
    "a string and more": b'1;a="b"c',
    "a quoted name": b'1;"',
    "NUL in a name": b"1;a\0",
    "NUL in a value": b"1;a=b\0",
    "NUL in a string": b'1;a="\0',
    "NUL behind a backslash": b'1;a="\\\0',
    "DEL in a string": b'1;a="\x7f',
    "a control character in a name": b"1;\x01",
    "bare LF in an extension": b"1;a\n",
    "bare LF in a string": b'1;a="\n',
    "bare CR in an extension": b"1;a\rb",
    "a non-ASCII name": b"1;\xe4",
    "a non-ASCII value": b"1;a=\xe4",
    "a slash in a value": b"1;a=b/",
    "data that is too long": b"1\r\nxy",
    "data that ends in LF": b"1\r\nx\n",
    "data that ends in CR CR": b"1\r\nx\r\r",
    "no size after the data": b"1\r\nx\r\n\r",
    "bare LF at the end": b"0\r\n\n",
    "a trailer folded by a space": b"0\r\na: b\r\n ",
    "a trailer folded by a tab": b"0\r\na: b\r\n\t",
    "a folded first trailer": b"0\r\n ",
    "a trailer that ends in bare LF": b"0\r\na: b\n",
    "a trailer with a bare CR": b"0\r\na: b\rc",
    "NUL in a trailer": b"0\r\na: \0",
    "DEL in a trailer": b"0\r\na: \x7f",
    "a control character in a trailer": b"0\r\na: \x1b",
    "a trailer without a name": b"0\r\n:",
    "a trailer without a colon": b"0\r\na\r",
    "a space before the colon": b"0\r\na ",
    "a non-ASCII trailer name": b"0\r\n\xe4",
    "a bare CR after the trailers": b"0\r\na: b\r\n\rx",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_chunks_are_refused_at_the_first_byte_that_is_wrong(data: bytes) -> None:
    bad = refused(data)
    assert (bad.status, bad.reason) == (400, Reason.PROTOCOL_ERROR)
    with pytest.raises(EOFError):
        decode(data[:-1])


@pytest.mark.parametrize("size", [b"7fffffffffffffff", b"7" + b"F" * 15, b"0" + b"f" * 15])
def test_the_largest_size_is_awaited(size: bytes) -> None:
    with pytest.raises(EOFError):
        decode(size + b"\r\nx")


@pytest.mark.parametrize("size", [b"8000000000000000", b"f" * 16, b"10000000000000000", b"0" * 17])
def test_a_size_beyond_it_is_refused_at_its_last_digit(size: bytes) -> None:
    assert refused(size).status == 400
    with pytest.raises(EOFError):
        decode(size[:-1])


# limits


def test_extensions_are_limited_in_their_sum() -> None:
    limits = Limits(max_head=10)
    chunk = b"1;a=b\r\nx\r\n"
    # four bytes and then the end of the line each
    with pytest.raises(EOFError):
        decode(chunk * 2 + b"1;a", limits=limits)
    assert refused(chunk * 2 + b"1;a=", limits).status == 400
    assert refused(b'1;a="' + b"b" * 10, limits).status == 400
    assert refused(b"1" + b" " * 11, limits).status == 400


def test_trailers_are_limited_in_their_sum_and_number() -> None:
    limits = Limits(max_head=20, max_headers=2)
    assert decode(b"0\r\na: 1234567890123\r\n\r\n", limits=limits) == (b"", b"")
    assert decode(b"0\r\na: b\r\nc: d\r\n\r\n", limits=limits) == (b"", b"")
    for trailers in (b"a: 123456789012345678", b"a: b\r\n" * 3, b"a" * 21, b"a:" + b" " * 19):
        bad = refused(b"0\r\n" + trailers, limits)
        assert (bad.status, bad.reason) == (431, Reason.HEADER_TOO_LARGE)


def test_extensions_and_trailers_have_a_limit_each() -> None:
    body = b"1;a=bcdefgh\r\nx\r\n0\r\na: b\r\n\r\n"
    assert decode(body, limits=Limits(max_head=10)) == (b"x", b"")


def test_without_limits_nothing_is_too_long() -> None:
    endless = Limits(max_head=math.inf, max_headers=math.inf)
    body = b"1;" + b"a" * 50_000 + b"\r\nx\r\n0\r\n" + b"a: b\r\n" * 5000 + b"\r\n"
    assert decode(body, limits=endless) == (b"x", b"")


def test_a_body_that_is_too_long_is_refused_where_it_is_announced() -> None:
    limits = Limits(max_body=5)
    assert decode(b"3\r\nabc\r\n2\r\nde\r\n" + LAST, limits=limits) == (b"abcde", b"")
    assert refused(b"3\r\nabc\r\n3\r\n", limits).status == 413
    assert refused(b"7fffffffffffffff\r\n", limits).status == 413


def test_data_that_was_given_out_is_not_held() -> None:
    decoder = ChunkDecoder(b"5\r\nabc", Limits())
    assert decoder.held == 6
    assert decoder.next_piece() == b"abc"
    assert decoder.held == 0
    decoder.feed(b"de\r\n0\r\n\r\nmore")
    assert decoder.held == 13
    assert decoder.next_piece() == b"de"
    assert decoder.next_piece() == b""
    assert (decoder.unread(), decoder.held) == (b"more", 4)


# pieces


def pieces_of(decoder: ChunkDecoder) -> list[bytes]:
    """Return the pieces that can be read of what was fed."""
    pieces = []
    while piece := decoder.next_piece():
        pieces.append(piece)
    return pieces


def test_small_chunks_that_have_come_together_are_one_piece() -> None:
    decoder = ChunkDecoder(b"2\r\nab\r\n" * 100_000 + LAST + b"more", Limits())
    pieces = pieces_of(decoder)
    assert b"".join(pieces) == b"ab" * 100_000
    assert [len(piece) for piece in pieces] == [65536, 65536, 65536, 200_000 - 3 * 65536]
    assert decoder.unread() == b"more"


def test_a_large_chunk_is_a_piece_of_its_own() -> None:
    large = b"1000\r\n" + b"a" * 4096 + b"\r\n"
    assert pieces_of(ChunkDecoder(large * 3, Limits())) == [b"a" * 4096] * 3


def test_the_beginning_of_a_chunk_is_joined_with_what_has_come_before_it() -> None:
    decoder = ChunkDecoder(b"2\r\nab\r\n5\r\ncd", Limits())
    assert pieces_of(decoder) == [b"abcd"]
    decoder.feed(b"efg\r\n1\r\nh\r\n")
    assert pieces_of(decoder) == [b"efgh"]


def test_many_chunks_in_one_piece_are_told_until_more_is_fed() -> None:
    decoder = ChunkDecoder(b"1\r\na\r\n" * 255, Limits())
    assert pieces_of(decoder) == [b"a" * 255]
    assert not decoder.many
    decoder.feed(b"1\r\na\r\n" * 256)
    assert decoder.next_piece() == b"a" * 256
    assert decoder.next_piece() is None
    assert decoder.many
    decoder.feed(b"1")
    assert not decoder.many


@pytest.mark.parametrize("wrong", [b"x", b"3\r\n", b"2\r\nab!"])
def test_what_came_before_something_wrong_is_given_out_first(wrong: bytes) -> None:
    decoder = ChunkDecoder(b"1\r\na\r\n1\r\nb\r\n" + wrong, Limits(max_body=4))
    assert decoder.next_piece() == (b"abab" if wrong.endswith(b"!") else b"ab")
    for _ in range(2):
        with pytest.raises(BadRequest):
            decoder.next_piece()


# beside h11


def read_by_h11(body: bytes) -> tuple[bytes, bytes]:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + body)
    connection.next_event()
    data = b""
    while isinstance(event := connection.next_event(), h11.Data):
        data += event.data
    assert isinstance(event, h11.EndOfMessage)
    return data, connection.trailing_data[0]


TOKENS = st.text("!#$%&'*+-.^_`|~09azAZ", min_size=1, max_size=4).map(str.encode)
TEXTS = st.text(" \t!#~az\xe4\xff", max_size=6).map(lambda text: text.encode("latin-1"))
SPACES = st.sampled_from([b"", b"", b" ", b"\t "])
ESCAPES = st.lists(st.one_of(TEXTS, st.sampled_from([b'\\"', b"\\\\", b"\\ ", b"\\\xe4"])), max_size=3).map(b"".join)


@st.composite
def extensions(draw: st.DrawFn) -> bytes:
    line = b""
    for number in range(draw(st.integers(0, 3))):
        # h11 does not know the whitespace that RFC 9112 allows before the first
        line += (draw(SPACES) if number else b"") + b";" + draw(SPACES) + draw(TOKENS)
        if draw(st.booleans()):
            value = draw(st.one_of(TOKENS, ESCAPES.map(lambda text: b'"' + text + b'"')))
            line += draw(SPACES) + b"=" + draw(SPACES) + value
    return line


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A body in chunks with everything that the grammar allows."""
    body = b""
    for data in draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4)):
        size = b"%x" % len(data)
        size = b"0" * draw(st.integers(0, 3)) + (size.upper() if draw(st.booleans()) else size)
        body += size + draw(extensions()) + b"\r\n" + data + b"\r\n"
    trailers = draw(st.lists(st.tuples(TOKENS, TEXTS), max_size=3))
    fields = b"".join(name + b":" + value + b"\r\n" for name, value in trailers)
    return body + b"0" * draw(st.integers(1, 3)) + draw(extensions()) + b"\r\n" + fields + b"\r\n"


@given(bodies(), st.binary(max_size=5), st.lists(st.integers(0, 400), max_size=6))
@settings(deadline=None)
def test_valid_chunks_are_read_as_h11_reads_them_in_any_pieces(body: bytes, after: bytes, cuts: list[int]) -> None:
    stream = body + after
    expected = read_by_h11(stream)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    assert decode(*(stream[a:b] for a, b in itertools.pairwise(edges))) == expected == decode(*by_byte(stream))
    assert expected[1] == after


SPACE_BEFORE_EXTENSION = re.compile(rb"[0-9A-Fa-f][ \t]+;")


@given(bodies(), st.integers(0, 200), st.integers(0, 3), st.binary(max_size=2))
@settings(deadline=None, max_examples=examples(500))
def test_chunks_that_are_accepted_are_accepted_by_h11_with_the_same_data(
    body: bytes, place: int, cut: int, junk: bytes
) -> None:
    stream = body[:place] + junk + body[place + cut :]
    try:
        decoded = decode(stream)
    except (BadRequest, EOFError) as error:
        with pytest.raises(type(error)):
            decode(*by_byte(stream))
    else:
        assert decode(*by_byte(stream)) == decoded
        if not SPACE_BEFORE_EXTENSION.search(stream):
            assert decoded == read_by_h11(stream)
