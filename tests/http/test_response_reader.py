"""Reading responses: what is read, what is refused, and that neither depends on how the bytes come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlined.http import BadResponse, Limits, Response, ResponseReader
from deadlined.http.wire import CONTINUE, ResponseWriter
from tests.support.requests import by_byte

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


class Read(NamedTuple):
    """What was read of one response."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    keep_alive: bool


def reader_of(data: bytes, limits: Limits | None = None) -> ResponseReader:
    reader = ResponseReader(limits or Limits())
    reader.feed(data)
    return reader


def head(data: bytes, method: str = "GET") -> Response:
    response = reader_of(data).next_response(method)
    assert response is not None
    return response


def whole(pieces: list[bytes], methods: list[str], ends: bool) -> list[Read]:
    """Feed the pieces, and return each response that is complete."""
    reader = ResponseReader(Limits())
    found: list[Read] = []
    waiting: list[bytes | None] = [*pieces, *([None] if ends else [])]
    asked = iter(methods)
    method = next(asked)
    response: Response | None = None
    body = b""
    while True:
        if response is None:
            response = reader.next_response(method)
            body = b""
        piece = None if response is None else reader.next_body()
        if piece:
            body += piece
            assert reader.received == len(body)
        elif piece is not None:
            assert response is not None
            assert reader.at_end
            found.append(Read(response.status, response.headers, body, response.keep_alive))
            if response.status >= 200:
                method = next(asked, "GET")
            response = None
        elif not waiting:
            return found
        else:
            data = waiting.pop(0)
            if data is None:
                reader.end()
            else:
                reader.feed(data)


def test_a_head_is_read() -> None:
    response = head(b"HTTP/1.1 418 I'm a teapot\r\nX-One:  a b \r\nSet-Cookie: c\r\nset-cookie: d\r\n\r\n")
    assert (response.status, response.version) == (418, "1.1")
    assert response.headers == [(b"x-one", b"a b"), (b"set-cookie", b"c"), (b"set-cookie", b"d")]


@pytest.mark.parametrize("line", [b"HTTP/1.1 200 ", b"HTTP/1.1 200", b"HTTP/1.1 999 Caf\xe9", b"HTTP/1.2 200 OK"])
def test_a_phrase_may_be_missing_or_anything(line: bytes) -> None:
    assert head(line + b"\r\ncontent-length: 0\r\n\r\n").version == "1.1"


@pytest.mark.parametrize(
    ("data", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: x, Close\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: x\r\nconnection: close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n", True),
        # a body that ends with the connection
        (b"HTTP/1.1 200 OK\r\n\r\n", False),
        (b"HTTP/1.1 204 No\r\n\r\n", True),
    ],
)
def test_whether_the_connection_can_be_used_again(data: bytes, keeps: bool) -> None:
    assert head(data).keep_alive is keeps


def test_the_next_protocol_is_the_one_that_connection_names() -> None:
    assert head(b"HTTP/1.1 101 x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n").upgrade == b"websocket"
    assert head(b"HTTP/1.1 101 x\r\nupgrade: websocket\r\n\r\n").upgrade == b""


def test_what_follows_a_101_is_given_out() -> None:
    reader = reader_of(b"HTTP/1.1 101 x\r\nupgrade: y\r\nconnection: upgrade\r\n\r\n\x00\x01")
    reader.next_response("GET")
    assert (reader.at_end, reader.take_rest(), reader.buffered) == (True, b"\x00\x01", 0)


def test_an_incomplete_head_is_buffered_and_can_be_taken() -> None:
    reader = reader_of(OK)
    assert reader.next_response("GET") is None
    assert (reader.buffered, reader.take_rest(), reader.buffered) == (len(OK), OK, 0)


@pytest.mark.parametrize(
    ("data", "method", "bodies"),
    [
        (OK + b"content-length: 3\r\n\r\nabc", "GET", [b"abc"]),
        (OK + b"content-length: 0\r\n\r\n", "GET", [b""]),
        (OK + b"transfer-encoding: Chunked\r\n\r\n3;x=1\r\nabc\r\n2\r\nde\r\n0\r\nt: u\r\n\r\n", "GET", [b"abcde"]),
        (OK + b"content-length: 3\r\n\r\n", "HEAD", [b""]),
        (OK + b"transfer-encoding: chunked\r\n\r\n", "HEAD", [b""]),
        (b"HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\n", "GET", [b""]),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 3\r\n\r\n", "GET", [b""]),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 1\r\n\r\na", "POST", [b"", b"a"]),
        ((OK + b"content-length: 1\r\n\r\na") * 2, "GET", [b"a", b"a"]),
    ],
)
def test_where_a_body_ends(data: bytes, method: str, bodies: list[bytes]) -> None:
    assert [one.body for one in whole([data], [method], False)] == bodies
    assert [one.body for one in whole(by_byte(data), [method], False)] == bodies


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    assert whole([b"HTTP/1.0 200 OK\r\n\r\nab", b"c"], ["GET"], True) == [Read(200, [], b"abc", False)]
    reader = reader_of(OK + b"\r\n")
    reader.next_response("GET")
    assert (reader.at_end, reader.next_body()) == (False, None)
    reader.end()
    assert (reader.at_end, reader.next_body()) == (True, b"")


@pytest.mark.parametrize(
    "data",
    [
        OK + b"content-length: 3\r\n\r\nabc",
        CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
        OK + b"\r\nabc",
        b"HTTP/1.1 100 \r\n\r\n" + OK + b"\r\nabc",
    ],
)
@pytest.mark.parametrize("read_first", [0, 1])
def test_what_came_before_the_end_can_be_read_after_it(data: bytes, read_first: int) -> None:
    reader = reader_of(data)
    heads = [reader.next_response("GET") for _ in range(read_first)]
    reader.end()
    while not heads or (heads[-1] is not None and heads[-1].status < 200):
        heads.append(reader.next_response("GET"))
    assert (reader.next_body(), reader.next_body(), reader.at_end) == (b"abc", b"", True)
    assert reader.next_response("GET") is None


def test_a_body_has_no_limit() -> None:
    for data in (OK + b"content-length: 3\r\n\r\nabc", CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"):
        reader = reader_of(data, Limits(max_body=2))
        reader.next_response("GET")
        assert (reader.next_body(), reader.next_body()) == (b"abc", b"")


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200",
        OK + b"content-length: 3\r\n\r\nab",
        OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\n0\r\n",
    ],
)
def test_an_end_in_the_middle_is_refused(data: bytes) -> None:
    with pytest.raises(BadResponse, match="too early"):
        whole([data], ["GET"], True)
    # also if nothing was read before it
    reader = reader_of(data)
    with pytest.raises(BadResponse, match="too early"):
        end_and_read(reader)


def end_and_read(reader: ResponseReader) -> None:
    reader.end()
    while reader.next_response("GET"):
        while reader.next_body():
            pass


@pytest.mark.parametrize(
    ("data", "reads"),
    [
        (OK, 0),
        (OK, 1),
        (OK + b"content-length: 3\r\n\r\nab", 1),
        (OK + b"content-length: 3\r\n\r\nab", 2),
        (CHUNKED + b"3\r\nab", 2),
        (CHUNKED, 1),
    ],
)
def test_an_end_is_refused_at_once_if_it_is_plainly_too_early(data: bytes, reads: int) -> None:
    reader = reader_of(data)
    for read in range(reads):
        if read:
            reader.next_body()
        else:
            reader.next_response("GET")
    with pytest.raises(BadResponse, match="too early"):
        reader.end()


def test_a_head_that_was_completed_in_time_is_read_after_the_end() -> None:
    reader = reader_of(OK)
    assert reader.next_response("GET") is None
    reader.feed(b"content-length: 0\r\n\r\n")
    reader.end()
    assert reader.next_response("GET") is not None


def test_an_end_in_the_second_response_is_refused() -> None:
    reader = reader_of(OK + b"content-length: 1\r\n\r\na" + OK)
    with pytest.raises(BadResponse, match="too early"):
        end_and_read(reader)


def test_an_end_between_responses_is_none() -> None:
    assert len(whole([OK + b"content-length: 0\r\n\r\n"], ["GET"], True)) == 1


REFUSED = {
    "not http": b"SSH-2.0-OpenSSH\r\n\r\n",
    "http/2": b"HTTP/2.0 200 OK\r\n\r\n",
    "lower case": b"http/1.1 200 OK\r\n\r\n",
    "an empty line before": b"\r\n" + OK + b"\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "a long status": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a status below 100": b"HTTP/1.1 099 OK\r\n\r\n",
    "two spaces": b"HTTP/1.1  200 OK\r\n\r\n",
    "bare LF": b"HTTP/1.1 200 OK\ncontent-length: 0\r\n\r\n",
    "bare LF in a field": OK + b"a: b\nc: d\r\n\r\n",
    "bare CR": OK + b"a: b\rc\r\n\r\n",
    "NUL": OK + b"a: b\x00\r\n\r\n",
    "a folded line": OK + b"a: b\r\n c\r\n\r\n",
    "a space before the colon": OK + b"a : b\r\n\r\n",
    "no colon": OK + b"a\r\n\r\n",
    "no name": OK + b": a\r\n\r\n",
    "a name that is no token": OK + b"a(: b\r\n\r\n",
    "two lengths": OK + b"content-length: 3\r\ncontent-length: 3\r\n\r\n",
    "a list of lengths": OK + b"content-length: 3, 3\r\n\r\n",
    "a signed length": OK + b"content-length: +3\r\n\r\n",
    "a hexadecimal length": OK + b"content-length: 0x3\r\n\r\n",
    "an empty length": OK + b"content-length:\r\n\r\n",
    "a length of another script": OK + "content-length: ٣\r\n\r\n".encode(),
    "a huge length": OK + b"content-length: 9223372036854775808\r\n\r\n",
    "length and chunks": OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
    "another encoding": OK + b"transfer-encoding: gzip\r\n\r\n",
    "two encodings": OK + b"transfer-encoding: gzip, chunked\r\n\r\n",
    "chunked twice": OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_ambiguous_or_malformed_is_refused(name: str) -> None:
    with pytest.raises(BadResponse) as refused:
        head(REFUSED[name])
    with pytest.raises(BadResponse) as in_pieces:
        whole(by_byte(REFUSED[name]), ["GET"], False)
    assert refused.value.detail == in_pieces.value.detail


@pytest.mark.parametrize(
    "data",
    [
        b"SECRET",
        b"HTTP/1.SECRET",
        b"HTTP/1.1 SECRET\r\n\r\n",
        OK + b"SECRET\r\n\r\n",
        OK + b"SECRET : SECRET\r\n\r\n",
        OK + b"a: SECRET\0\r\n\r\n",
        OK + b"content-length: SECRET\r\n\r\n",
        OK + b"transfer-encoding: SECRET\r\n\r\n",
        CHUNKED + b"SECRET",
        CHUNKED + b"0\r\nSECRET\r\n",
    ],
)
def test_a_refusal_does_not_quote_the_upstream(data: bytes) -> None:
    with pytest.raises(BadResponse) as refused:
        whole([data], ["GET"], False)
    assert "SECRET" not in f"{refused.value} {refused.value.detail} {refused.value.__cause__}"


@pytest.mark.parametrize("byte", sorted({*range(0x20), 0x7F} - {0x09}))
def test_a_tab_is_the_only_control_character_in_a_line(byte: int) -> None:
    for line in (b"HTTP/1.1 200 O%cK\r\n" % byte, OK + b"a: b%cc\r\n" % byte, OK + b"a%cb: c\r\n" % byte):
        with pytest.raises(BadResponse):
            head(line + b"\r\n")
    assert head(b"HTTP/1.1 200 O\tK\r\na: b\tc\xff\r\n\r\n").headers == [(b"a", b"b\tc\xff")]


@pytest.mark.parametrize("body", [b"zz\r\n", b"3\nabc", b"3\r\nabcd", b"-1\r\n", b"3;\x00\r\n", b"0\r\na b\r\n"])
def test_malformed_chunks_are_refused(body: bytes) -> None:
    with pytest.raises(BadResponse, match=r"\w"):
        whole([OK + b"transfer-encoding: chunked\r\n\r\n" + body], ["GET"], False)


@pytest.mark.parametrize(
    ("fits", "wrong"),
    [
        (b"", b"\r"),
        (b"HTTP/", b"2"),
        (b"HTTP/1.", b"x"),
        (b"HTTP/1.1", b"\t"),
        (b"HTTP/1.1 ", b"0"),
        (b"HTTP/1.1 20", b"x"),
        (b"HTTP/1.1 200", b"0"),
        (b"HTTP/1.1 200\r", b"x"),
        (b"HTTP/1.1 200 OK", b"\n"),
        (OK, b" "),
        (OK + b"a", b" "),
        (OK + b"a: b", b"\n"),
        (OK + b"a: b\r\n", b"\t"),
    ],
)
def test_a_head_that_cannot_become_one_is_refused_at_its_first_wrong_byte(fits: bytes, wrong: bytes) -> None:
    reader = reader_of(fits)
    assert reader.next_response("GET") is None
    reader.feed(wrong)
    with pytest.raises(BadResponse):
        reader.next_response("GET")
    with pytest.raises(BadResponse):
        reader_of(fits + wrong).next_response("GET")


@pytest.mark.parametrize("in_one", [True, False])
def test_a_head_has_a_limit(in_one: bool) -> None:
    limits = Limits(max_head=100)
    fits = OK + b"a: " + bytes([98]) * (100 - len(OK) - 7) + b"\r\n\r\n"
    assert len(fits) == 100
    assert reader_of(fits, limits).next_response("HEAD") is not None
    reader = reader_of(fits[:-4] + b"b" + (b"\r\n\r\n" if in_one else bytes(20)), limits)
    with pytest.raises(BadResponse, match="longer than 100"):
        reader.next_response("GET")


def test_a_head_that_comes_in_pieces_has_a_limit() -> None:
    reader = reader_of(OK, Limits(max_head=100))
    assert reader.next_response("GET") is None
    reader.feed(b"a: " + b"b" * 100 + b"\r\n\r\n")
    with pytest.raises(BadResponse, match="longer than 100"):
        reader.next_response("GET")


def test_fields_have_a_limit() -> None:
    limits = Limits(max_headers=3)
    assert reader_of(OK + b"a: b\r\n" * 3 + b"\r\n", limits).next_response("HEAD") is not None
    with pytest.raises(BadResponse, match="more than 3"):
        reader_of(OK + b"a: b\r\n" * 4 + b"\r\n", limits).next_response("HEAD")


@pytest.mark.parametrize("body", [b"1;" + b"a" * 100 + b"\r\n", b"0\r\na: " + b"b" * 100, b"0\r\n" + b"a: b\r\n" * 4])
def test_extensions_and_trailers_have_the_limits_of_a_head(body: bytes) -> None:
    reader = reader_of(CHUNKED + body, Limits(max_head=80, max_headers=3))
    reader.next_response("GET")
    with pytest.raises(BadResponse, match="longer than"):
        reader.next_body()


def test_a_body_that_came_with_its_head_is_given_out_in_one_piece() -> None:
    reader = reader_of(OK + b"content-length: 5\r\n\r\nabcde")
    reader.next_response("GET")
    assert (reader.next_body(), reader.at_end, reader.received, reader.buffered) == (b"abcde", True, 5, 0)


def test_a_piece_that_came_alone_is_not_copied() -> None:
    reader = reader_of(OK + b"content-length: 100000\r\n\r\n")
    reader.next_response("GET")
    piece = bytes(100_000)
    reader.feed(piece)
    assert reader.next_body() is piece


def test_a_head_that_trickles_is_searched_once_and_not_copied() -> None:
    reader = ResponseReader(Limits())
    data = OK + b"a: " + b"b" * 5000 + b"\r\n\r\n"
    reader.feed(data[:1])
    assert reader.next_response("HEAD") is None
    late = reader._late
    for place in range(1, len(data) - 1):
        reader.feed(data[place : place + 1])
        assert reader.next_response("HEAD") is None
        # the next search begins where this one has ended
        assert (reader._checked, reader._late is late) == (place + 1, True)
    reader.feed(data[-1:] + b"rest")
    assert reader.next_response("HEAD") is not None
    assert (reader.buffered, reader.take_rest()) == (4, b"rest")


def test_responses_that_come_at_once_are_not_copied_for_each() -> None:
    data = CONTINUE * 1000 + OK + b"content-length: 3\r\n\r\nabc" + OK
    reader = reader_of(data)
    for _ in range(1000):
        response = reader.next_response("GET")
        assert response is not None
        assert (response.status, reader.at_end, reader._buffer is data) == (100, True, True)
    assert reader.next_response("GET") is not None
    assert (reader.next_body(), reader._buffer is data, reader.buffered) == (b"abc", True, len(OK))


def test_nothing_is_held_once_all_was_given_out() -> None:
    reader = reader_of(OK + b"content-length: 3\r\n\r\nabc")
    reader.next_response("GET")
    reader.next_body()
    assert (reader._buffer, bytes(reader._late)) == (b"", b"")


# property tests

NAMES = st.from_regex(rb"[a-z][a-z0-9_.-]{0,8}", fullmatch=True).filter(
    lambda name: name not in (b"connection", b"content-length", b"transfer-encoding", b"upgrade")
)
VALUES = st.from_regex(rb"[!-~\x80-\xff]([ \t!-~\x80-\xff]{0,8}[!-~\x80-\xff])?", fullmatch=True)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=5)
STATUSES = st.sampled_from([200, 201, 204, 301, 304, 404, 418, 500])
PIECES = st.lists(st.binary(max_size=20), max_size=4)


class Written(NamedTuple):
    """A response as bytes, and what must be read of it. The method is that of the request."""

    method: str
    interim: int
    expected: Read
    data: bytes

    @property
    def statuses_and_bodies(self) -> list[tuple[int, bytes]]:
        return [(100, b"")] * self.interim + [(self.expected.status, self.expected.body)]


@st.composite
def written(draw: st.DrawFn) -> Written:
    """Return what the project's own writer makes of a response."""
    method = draw(st.sampled_from(["GET", "POST", "HEAD"]))
    version = draw(st.sampled_from(["1.1", "1.0"]))
    status, fields, pieces = draw(STATUSES), draw(FIELDS), draw(PIECES)
    writer = ResponseWriter(method, version, draw(st.booleans()))
    body = b"".join(pieces)
    known = draw(st.booleans())
    writer.start(status, [*fields, *([(b"content-length", b"%d" % len(body))] if known else [])])
    interim = draw(st.integers(0, 2))
    data = CONTINUE * interim
    # one piece alone is sent with its length
    more = len(pieces) != 1
    for piece in pieces:
        data += b"".join(writer.body(piece, more, b"", b""))
    if more:
        data += b"".join(writer.body(b"", False, b"", b""))
    has_body = method != "HEAD" and status not in (204, 304)
    return Written(method, interim, Read(status, fields, body if has_body else b"", not writer.must_close), data)


SPACE = st.sampled_from([b"", b" ", b"\t", b" \t "])
PHRASES = st.from_regex(rb"( ([!-~\x80-\xff]([ \t!-~\x80-\xff]{0,8}[!-~\x80-\xff])?)?)?", fullmatch=True)
EXTENSIONS = st.sampled_from([b"", b";a", b";a=b", b'; a="b;\\"c"'])


@st.composite
def valid(draw: st.DrawFn) -> Written:
    """Return a valid response that our writer does not write so; even the space after its status may be missing."""
    version, status = draw(st.sampled_from([b"1.1", b"1.0"])), draw(st.integers(200, 999))
    pieces = [piece for piece in draw(PIECES) if piece]
    body = b"".join(pieces)
    framing = draw(st.sampled_from(["length", "end", *(["chunks"] if version == b"1.1" else [])]))
    fields = draw(FIELDS)
    sent = list(fields)
    place = draw(st.integers(0, len(fields)))
    if framing == "length":
        sent.insert(place, (b"Content-Length", b"%03d" % len(body)))
    elif framing == "chunks":
        sent.insert(place, (b"Transfer-Encoding", b"Chunked"))
    lines = [name.title() + b":" + draw(SPACE) + value + draw(SPACE) + b"\r\n" for name, value in sent]
    data = b"HTTP/%b %d%b\r\n%b\r\n" % (version, status, draw(PHRASES), b"".join(lines))
    if status in (204, 304):
        body = b""
    elif framing == "chunks":
        data += b"".join(b"0%X%b\r\n%b\r\n" % (len(piece), draw(EXTENSIONS), piece) for piece in pieces)
        data += b"00" + draw(EXTENSIONS) + b"\r\n" + draw(st.sampled_from([b"", b"t: u\r\n"])) + b"\r\n"
    else:
        data += body
    ends = framing == "end" and status not in (204, 304)
    return Written("GET", 0, Read(status, fields, body, version == b"1.1" and not ends), data)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut `data` at `places`, modulo its length, into pieces that are not empty."""
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True) if start < end]


def up_to_a_close(responses: list[Written]) -> Iterator[Written]:
    """Nothing can follow a response after which the connection is closed."""
    for response in responses:
        yield response
        if not response.expected.keep_alive:
            return


def without_framing(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [field for field in headers if field[0] not in (b"content-length", b"transfer-encoding", b"connection")]


@given(st.lists(written() | valid(), min_size=1, max_size=3), st.lists(st.integers(0, 10_000), max_size=8))
def test_responses_are_read_as_they_were_written_however_they_come(responses: list[Written], places: list[int]) -> None:
    responses = list(up_to_a_close(responses))
    data = b"".join(one.data for one in responses)
    methods = [one.method for one in responses]
    found = whole([data], methods, True)
    assert whole(cut(data, places), methods, True) == found
    assert whole(by_byte(data), methods, True) == found
    expected = [pair for one in responses for pair in one.statuses_and_bodies]
    assert [(one.status, one.body) for one in found] == expected
    final = [one for one in found if one.status >= 200]
    for one, response in zip(final, responses, strict=True):
        assert without_framing(one.headers) == without_framing(response.expected.headers)
        assert one.keep_alive is response.expected.keep_alive


def read_by_h11(method: str, data: bytes) -> list[tuple[int, list[tuple[bytes, bytes]], bytes]]:
    """Return status, fields and body of the interim responses and the final one."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    client.receive_data(b"")
    found: list[tuple[int, list[tuple[bytes, bytes]], bytes]] = []
    while isinstance(event := client.next_event(), h11.InformationalResponse):
        found.append((event.status_code, list(event.headers), b""))
    assert isinstance(event, h11.Response)
    body = b""
    while isinstance(piece := client.next_event(), h11.Data):
        body += piece.data
    assert isinstance(piece, h11.EndOfMessage)
    return [*found, (event.status_code, list(event.headers), body)]


@given(written() | valid())
def test_h11_reads_the_same(response: Written) -> None:
    theirs = read_by_h11(response.method, response.data)
    ours = whole([response.data], [response.method], True)
    # h11 writes `Chunked` in lower case
    assert [(one.status, lower(one.headers), one.body) for one in ours] == [
        (status, lower(headers), body) for status, headers, body in theirs
    ]


def lower(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value.lower()) for name, value in headers]


def outcome(pieces: list[bytes], method: str) -> list[Read] | str:
    try:
        return whole(pieces, [method], True)
    except BadResponse as bad:
        return bad.detail


@given(
    st.sampled_from([b"", OK, CHUNKED, CHUNKED + b"3\r\nabc\r\n", OK + b"content-length: 3\r\n\r\n"]),
    st.binary(max_size=60) | st.text('\r\n :;,=01a"HTP/.', max_size=60).map(str.encode),
    st.sampled_from(["HEAD", "GET"]),
    st.lists(st.integers(0, 200), max_size=5),
)
def test_noise_is_read_or_refused_alike_however_it_comes(
    before: bytes, noise: bytes, method: str, places: list[int]
) -> None:
    data = before + noise + b"\r\n\r\n"
    at_once = outcome([data], method)
    assert outcome(cut(data, places), method) == at_once
    assert outcome(by_byte(data), method) == at_once
