"""Reading responses: what is read, what is refused, and that neither depends on how the bytes come."""

from __future__ import annotations

from collections.abc import Iterator

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlined.http import BadResponse, Limits, Response, ResponseReader
from deadlined.http.wire import ResponseWriter

OK = b"HTTP/1.1 200 OK\r\n"


def reader_of(data: bytes, limits: Limits | None = None) -> ResponseReader:
    reader = ResponseReader(limits or Limits())
    reader.feed(data)
    return reader


def head(data: bytes, method: str = "GET") -> Response:
    response = reader_of(data).next_response(method)
    assert response is not None
    return response


def whole(pieces: list[bytes], methods: list[str], ends: bool) -> list[tuple[int, list[tuple[bytes, bytes]], bytes]]:
    """Feed the pieces, and return each response that is complete: its status, its fields and its body."""
    reader = ResponseReader(Limits())
    found: list[tuple[int, list[tuple[bytes, bytes]], bytes]] = []
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
        elif piece is not None:
            assert response is not None
            assert reader.at_end
            found.append((response.status, response.headers, body))
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
    assert [body for _, _, body in whole([data], [method], False)] == bodies
    assert [body for _, _, body in whole([bytes([byte]) for byte in data], [method], False)] == bodies


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    assert whole([b"HTTP/1.0 200 OK\r\n\r\nab", b"c"], ["GET"], True) == [(200, [], b"abc")]


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
    with pytest.raises(BadResponse):
        whole([bytes([byte]) for byte in REFUSED[name]], ["GET"], False)
    # in words of our own: the upstream's bytes are for no client
    assert refused.value.detail.isascii()
    assert "\\x" not in refused.value.detail


@pytest.mark.parametrize("body", [b"zz\r\n", b"3\nabc", b"3\r\nabcd", b"-1\r\n", b"3;\x00\r\n", b"0\r\na b\r\n"])
def test_malformed_chunks_are_refused(body: bytes) -> None:
    with pytest.raises(BadResponse, match=r"\w"):
        whole([OK + b"transfer-encoding: chunked\r\n\r\n" + body], ["GET"], False)


def test_a_head_that_cannot_become_one_is_refused_at_its_first_wrong_byte() -> None:
    reader = reader_of(b"HTTP/")
    assert reader.next_response("GET") is None
    reader.feed(b"2")
    with pytest.raises(BadResponse, match="not HTTP"):
        reader.next_response("GET")


@pytest.mark.parametrize("in_one", [True, False])
def test_a_head_has_a_limit(in_one: bool) -> None:
    limits = Limits(max_head=100)
    fits = OK + b"a: " + bytes([98]) * (100 - len(OK) - 7) + b"\r\n\r\n"
    assert len(fits) == 100
    assert reader_of(fits, limits).next_response("HEAD") is not None
    reader = reader_of(fits[:-4] + b"b" + (b"\r\n\r\n" if in_one else bytes(20)), limits)
    with pytest.raises(BadResponse, match="longer than 100"):
        reader.next_response("GET")


def test_fields_have_a_limit() -> None:
    limits = Limits(max_headers=3)
    assert reader_of(OK + b"a: b\r\n" * 3 + b"\r\n", limits).next_response("HEAD") is not None
    with pytest.raises(BadResponse, match="more than 3"):
        reader_of(OK + b"a: b\r\n" * 4 + b"\r\n", limits).next_response("HEAD")


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


def test_a_head_that_trickles_is_searched_once() -> None:
    reader = ResponseReader(Limits())
    data = OK + b"a: " + b"b" * 5000 + b"\r\n\r\n"
    for place in range(len(data) - 1):
        reader.feed(data[place : place + 1])
        assert reader.next_response("HEAD") is None
        # the next search begins where this one has ended
        assert reader._scanned == place + 1
    reader.feed(data[-1:])
    assert reader.next_response("HEAD") is not None


# property tests

NAMES = st.from_regex(rb"[a-z][a-z0-9_.-]{0,8}", fullmatch=True).filter(
    lambda name: name not in (b"connection", b"content-length", b"transfer-encoding", b"upgrade")
)
VALUES = st.from_regex(rb"[!-~\x80-\xff]([ \t!-~\x80-\xff]{0,8}[!-~\x80-\xff])?", fullmatch=True)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=5)
STATUSES = st.sampled_from([200, 201, 204, 301, 304, 404, 418, 500])
PIECES = st.lists(st.binary(max_size=20), max_size=4)


@st.composite
def written(draw: st.DrawFn) -> tuple[str, int, list[tuple[bytes, bytes]], bytes, bytes]:
    """Return a method, and what the project's own writer makes of a response to it."""
    method = draw(st.sampled_from(["GET", "POST", "HEAD"]))
    status, fields, pieces = draw(STATUSES), draw(FIELDS), draw(PIECES)
    writer = ResponseWriter(method, "1.1", False)
    body = b"".join(pieces)
    known = draw(st.booleans())
    writer.start(status, [*fields, *([(b"content-length", b"%d" % len(body))] if known else [])])
    data = b""
    for piece in pieces:
        data += b"".join(writer.body(piece, True, b"", b""))
    data += b"".join(writer.body(b"", False, b"", b""))
    has_body = method != "HEAD" and status not in (204, 304)
    return method, status, fields, body if has_body else b"", data


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    for start, end in zip([0, *ends], [*ends, len(data)], strict=True):
        yield data[start:end]


@given(st.lists(written(), min_size=1, max_size=3), st.lists(st.integers(0, 10_000), max_size=8))
def test_what_the_writer_writes_is_read_back_however_it_comes(
    responses: list[tuple[str, int, list[tuple[bytes, bytes]], bytes, bytes]], places: list[int]
) -> None:
    data = b"".join(one[4] for one in responses)
    pieces = [piece for piece in cut(data, places) if piece]
    found = whole(pieces, [one[0] for one in responses], False)
    assert [(status, body) for status, _, body in found] == [(one[1], one[3]) for one in responses]
    for (_, headers, _), one in zip(found, responses, strict=True):
        ours = [field for field in headers if field[0] not in (b"content-length", b"transfer-encoding")]
        assert ours == one[2]


@given(written())
def test_h11_reads_the_same(response: tuple[str, int, list[tuple[bytes, bytes]], bytes, bytes]) -> None:
    method, _, _, _, data = response
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    event = client.next_event()
    assert isinstance(event, h11.Response)
    body = b""
    while isinstance(piece := client.next_event(), h11.Data):
        body += piece.data
    ((status, headers, ours),) = whole([data], [method], False)
    assert (status, ours) == (event.status_code, body)
    assert headers == [(name.lower(), value) for name, value in event.headers]


@given(st.binary(max_size=60), st.lists(st.integers(0, 100), max_size=5))
def test_noise_is_read_or_refused_alike_however_it_comes(noise: bytes, places: list[int]) -> None:
    data = OK + noise + b"\r\n\r\n"

    def outcome(pieces: list[bytes]) -> object:
        try:
            return whole(pieces, ["HEAD"], False)[:1]
        except BadResponse:
            return "refused"

    assert outcome([data]) == outcome([piece for piece in cut(data, places) if piece])
