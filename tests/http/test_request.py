"""Reading requests from bytes, in any segmentation; refusing whatever two readers could read in two ways."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.http import BadRequest, Limits, Reason, Request
from deadlined.http.wire.parsers import head_parser
from deadlined.http.wire.request import RequestParser
from tests.support.examples import examples
from tests.support.http import CHUNKED_POST, GET, chunk, post
from tests.support.requests import PARSERS, Message, as_tuple, by_byte, get, one, parse, refused

# what is accepted


def test_a_head_is_parsed_into_its_parts() -> None:
    request = one(get(b"X-Thing:  two words \t", line=b"PATCH /a/b?c=%20d HTTP/1.1"))
    expected = Request(
        method="PATCH",
        target=b"/a/b?c=%20d",
        path_and_query=b"/a/b?c=%20d",
        version="1.1",
        headers=[(b"host", b"x"), (b"x-thing", b"two words")],
        content_length=None,
        chunked=False,
        keep_alive=True,
        expects_continue=False,
    )
    assert as_tuple(request) == as_tuple(expected)
    assert not request.has_body


@pytest.mark.parametrize("name", [b"host", b"Host", b"HOST", b"hOsT"])
def test_header_names_are_converted_to_lower_case(name: bytes) -> None:
    assert one(get(host=name + b": Example.ORG:80")).headers == [(b"host", b"Example.ORG:80")]


def test_repeated_fields_and_their_order_are_kept() -> None:
    assert one(get(b"b: 1", b"a: 2", b"B: 3")).headers[1:] == [(b"b", b"1"), (b"a", b"2"), (b"b", b"3")]


@pytest.mark.parametrize(
    ("line", "target", "path_and_query"),
    [
        (b"GET / HTTP/1.1", b"/", b"/"),
        (b"GET /%00 HTTP/1.1", b"/%00", b"/%00"),
        (b"GET //x HTTP/1.1", b"//x", b"//x"),
        (b"GET http://example.org/a?b HTTP/1.1", b"http://example.org/a?b", b"/a?b"),
        (b"OPTIONS * HTTP/1.1", b"*", b"*"),
    ],
)
def test_every_form_of_target_is_read(line: bytes, target: bytes, path_and_query: bytes) -> None:
    request = one(get(line=line))
    assert (request.target, request.path_and_query) == (target, path_and_query)


def test_a_url_names_the_host_that_the_application_sees() -> None:
    assert one(get(b"a: b", line=b"GET http://y:81/ HTTP/1.1")).headers == [(b"host", b"y:81"), (b"a", b"b")]


@pytest.mark.parametrize("value", [b"chunked", b"ChUnKeD", b"CHUNKED"])
def test_a_transfer_encoding_is_passed_on_as_it_was_written(value: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: \t" + value + b" \r\n\r\n"
    assert one(head + b"0\r\n\r\n").headers[1] == (b"transfer-encoding", value)


@pytest.mark.parametrize("method", ["GET", "get", "M-SEARCH", "!#$%&'*+-.^_`|~09", "A" * 64])
def test_any_token_is_a_method(method: str) -> None:
    head = get(line=method.encode() + b" / HTTP/1.1")
    assert one(head).method == method
    assert parse(*by_byte(head)) == parse(head)


@pytest.mark.parametrize(
    ("line", "fields", "keeps"),
    [
        (b"GET / HTTP/1.1", (), True),
        (b"GET / HTTP/1.1", (b"connection: close",), False),
        (b"GET / HTTP/1.1", (b"Connection: foo, Close",), False),
        (b"GET / HTTP/1.1", (b"connection: foo", b"connection: close"), False),
        (b"GET / HTTP/1.1", (b"connection: closed",), True),
        (b"GET / HTTP/1.0", (), False),
        (b"GET / HTTP/1.0", (b"connection: keep-alive",), True),
        (b"GET / HTTP/1.0", (b"Connection: Keep-Alive, x",), True),
        (b"GET / HTTP/1.0", (b"connection: keep-alive, close",), False),
    ],
)
def test_keep_alive_is_the_default_of_1_1_and_an_option_of_1_0(
    line: bytes, fields: tuple[bytes, ...], keeps: bool
) -> None:
    assert one(get(*fields, line=line)).keep_alive is keeps


def test_http_1_0_needs_no_host() -> None:
    assert one(get(line=b"GET / HTTP/1.0", host=None)).version == "1.0"


def test_empty_lines_before_a_request_are_ignored() -> None:
    assert parse(b"\r\n\r\n\r\n" + GET) == parse(GET)
    assert parse(*by_byte(b"\r\n\r\n" + GET)) == parse(GET)


def test_nothing_but_empty_lines_is_no_request() -> None:
    parser = RequestParser(Limits())
    parser.feed(b"\r\n" * 8)
    assert parser.next_request() is None
    assert parser.buffered == 0


def test_each_request_may_follow_a_few_empty_lines() -> None:
    lines = b"\r\n" * 8
    assert len(parse(lines + GET + lines + post(1) + b"a" + lines + GET)) == 3
    assert len(parse(*by_byte(lines + GET + lines + GET))) == 2


@pytest.mark.parametrize("pieces", [[b"\r\n" * 100_000], [b"\r\n"] * 9, [*by_byte(b"\r\n" * 9)], [b"\r\n" * 9 + GET]])
@pytest.mark.parametrize("before", [b"", GET], ids=["first", "later"])
def test_more_empty_lines_are_refused(before: bytes, pieces: list[bytes]) -> None:
    with pytest.raises(BadRequest, match="empty lines") as raised:
        parse(before, *pieces)
    assert raised.value.status == 400


def test_a_body_ends_after_its_content_length() -> None:
    ((_, body), (_, none)) = parse(post(5) + b"hello" + GET)
    assert (body, none) == (b"hello", b"")


def test_a_length_of_zero_is_no_body() -> None:
    request = one(post(0))
    assert (request.content_length, request.has_body) == (0, False)


def test_a_chunked_body_is_decoded_without_extensions_and_trailers() -> None:
    data = CHUNKED_POST + b"5;a=b\r\nhello\r\n00A;c\r\n, worldly!\r\n0;d\r\nx-trailer: 1\r\ncontent-length: 3\r\n\r\n"
    ((_, body), (_, after)) = parse(data + GET)
    assert (body, after) == (b"hello, worldly!", b"")


def test_a_chunked_body_may_be_empty() -> None:
    assert [body for _, body in parse(CHUNKED_POST + b"0\r\n\r\n" + GET)] == [b"", b""]
    assert one(CHUNKED_POST).has_body


def test_expect_continue_is_recognised_in_1_1_and_ignored_in_1_0() -> None:
    assert one(post(5, b"Expect: 100-Continue")).expects_continue
    assert not one(get(b"expect: 100-continue", line=b"GET / HTTP/1.0")).expects_continue
    assert not one(get(b"expect: the unexpected", line=b"GET / HTTP/1.0")).expects_continue


def test_an_expectation_may_come_twice_and_its_list_may_have_empty_elements() -> None:
    assert one(post(5, b"Expect: 100-continue", b"Expect: 100-continue")).expects_continue
    assert one(post(5, b"Expect: , 100-continue,")).expects_continue
    assert not one(post(5, b"Expect:")).expects_continue


def test_a_higher_minor_version_is_read_as_the_highest_that_is_known() -> None:
    assert one(get(line=b"GET / HTTP/1.9")).version == "1.1"
    assert one(get(line=b"GET / HTTP/1.0")).version == "1.0"


def test_received_counts_the_body_of_the_current_request() -> None:
    parser = RequestParser(Limits())
    parser.feed(post(5) + b"hello" + GET)
    parser.next_request()
    assert parser.next_body() == b"hello"
    assert parser.received == 5
    assert parser.next_body() == b""
    parser.next_request()
    assert parser.received == 0


# any segmentation

STREAM = (
    get(line=b"GET /1 HTTP/1.1")
    + post(11)
    + b"hello world"
    + b"\r\n"
    + CHUNKED_POST
    + b"3\r\nabc\r\n"
    + b"1;x\r\n\n\r\n"
    + b"0\r\nt: 1\r\n\r\n"
    + get(line=b"HEAD /2 HTTP/1.0", host=None)
    + post(0)
    + CHUNKED_POST
    + b"0\r\n\r\n"
    + GET
)


def test_reading_byte_by_byte_gives_the_same_as_reading_at_once() -> None:
    messages = parse(STREAM)
    assert [body for _, body in messages] == [b"", b"hello world", b"abc\n", b"", b"", b"", b""]
    assert parse(*by_byte(STREAM)) == messages


@given(st.lists(st.integers(0, len(STREAM))))
def test_any_split_gives_the_same_requests_and_bodies(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(edges) if a < b]
    assert parse(*pieces) == parse(STREAM)


# of a long buffer only the head becomes text
BODY = bytes(range(256)) * 40


@pytest.mark.parametrize("cut", [0, 1, 5000, 9000])
def test_requests_in_a_long_buffer_are_read_as_in_short_ones(cut: int) -> None:
    long = post(len(BODY)) + BODY + STREAM * 20 + get(b"a: " + b"b" * 5000) + post(len(BODY), b"c: d") + BODY
    expected = parse(post(len(BODY)), BODY) + parse(STREAM) * 20
    expected += parse(get(b"a: " + b"b" * 5000)) + parse(post(len(BODY), b"c: d"), BODY)
    assert parse(long[:cut], long[cut:]) == expected


@pytest.mark.parametrize("bad", [b"GET /\0 HTTP/1.1\r\n", b"GET / HTTP/1.1\nx", b"GET / HTTP/1.1\r\na: b\rc"])
def test_a_malformed_head_in_a_long_buffer_is_refused(bad: bytes) -> None:
    for before in (post(len(BODY)) + BODY, GET * 200):
        with pytest.raises(BadRequest):
            parse(before + bad)
    with pytest.raises(BadRequest):
        parse(bad + BODY)


def test_too_long_a_head_in_a_long_buffer_is_refused() -> None:
    head = get(b"a: " + b"b" * 10_000)
    assert refused(head, Limits(max_head=8192)).status == refused(GET * 100 + head, Limits(max_head=8192)).status == 431


@given(st.lists(st.tuples(st.binary(max_size=300), st.booleans()), min_size=1, max_size=5), st.integers(1, 50))
def test_bodies_of_any_bytes_arrive_whole(bodies: list[tuple[bytes, bool]], size: int) -> None:
    stream = b""
    for body, chunked in bodies:
        chunks = b"".join(chunk(body[i : i + 7]) for i in range(0, len(body), 7)) + chunk(b"")
        stream += CHUNKED_POST + chunks if chunked else post(len(body)) + body
    pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert [body for _, body in parse(*pieces)] == [body for body, _ in bodies]


@settings(max_examples=examples(300))
@given(st.binary(max_size=80), st.integers(0, len(STREAM)), st.integers(0, 20))
def test_garbage_anywhere_is_refused_or_read_but_never_a_crash(junk: bytes, place: int, lost: int) -> None:
    data = STREAM[:place] + junk + STREAM[place + lost :]
    try:
        at_once: list[Message] | int = parse(data)
    except BadRequest as bad:
        at_once = bad.status
        assert 400 <= bad.status < 600
    try:
        piecemeal: list[Message] | int = parse(*by_byte(data))
    except BadRequest as bad:
        piecemeal = bad.status
    assert isinstance(piecemeal, int) == isinstance(at_once, int)
    if not isinstance(at_once, int):
        assert piecemeal == at_once


# what is refused

BAD: dict[str, tuple[bytes, int]] = {
    "bare LF after the request line": (b"GET / HTTP/1.1\nhost: x\r\n\r\n", 400),
    "bare LF in a field": (get(b"a: b\nc: d"), 400),
    "bare LF throughout": (b"GET / HTTP/1.1\nhost: x\n\n", 400),
    "bare LF before the empty line": (b"GET / HTTP/1.1\r\nhost: x\n\r\n", 400),
    "leading bare LF": (b"\n" + GET, 400),
    "bare CR in a field": (get(b"a: b\rc: d"), 400),
    "bare CR in the request line": (get(line=b"GET /\r HTTP/1.1"), 400),
    "leading bare CR": (b"\rGET / HTTP/1.1\r\n\r\n", 400),
    "NUL in a value": (get(b"a: b\0c"), 400),
    "NUL in the request line": (get(line=b"GET /\0 HTTP/1.1"), 400),
    "folded by a space": (get(b"a: b", b" c"), 400),
    "folded by a tab": (get(b"a: b", b"\tc"), 400),
    "folded first field": (get(host=b" host: x"), 400),
    "space before the colon": (get(b"a : b"), 400),
    "no colon": (get(b"abc"), 400),
    "empty name": (get(b": b"), 400),
    "non-ASCII name": (get(b"\xe4: b"), 400),
    "two equal Content-Length": (post(5, b"content-length: 5"), 400),
    "two different Content-Length": (post(5, b"Content-Length: 6"), 400),
    "Content-Length list": (get(b"content-length: 5, 5"), 400),
    "Content-Length with plus": (get(b"content-length: +5"), 400),
    "negative Content-Length": (get(b"content-length: -1"), 400),
    "hexadecimal Content-Length": (get(b"content-length: 0x5"), 400),
    "Content-Length with underscore": (get(b"content-length: 1_0"), 400),
    "Content-Length with an inner space": (get(b"content-length: 1 0"), 400),
    "empty Content-Length": (get(b"content-length:"), 400),
    "Content-Length in other digits": (get("content-length: \N{ARABIC-INDIC DIGIT FIVE}".encode()), 400),
    "enormous Content-Length": (get(b"content-length: " + b"9" * 5000), 400),
    "Content-Length and Transfer-Encoding": (post(5, b"transfer-encoding: chunked"), 400),
    "Transfer-Encoding and Content-Length": (get(b"transfer-encoding: chunked", b"content-length: 5"), 400),
    "Transfer-Encoding in HTTP/1.0": (get(b"transfer-encoding: chunked", line=b"POST / HTTP/1.0"), 400),
    "gzip": (get(b"transfer-encoding: gzip"), 400),
    "gzip and chunked": (get(b"transfer-encoding: gzip, chunked"), 501),
    "gzip and chunked in two fields": (get(b"transfer-encoding: gzip", b"transfer-encoding: Chunked"), 501),
    "chunked and gzip": (get(b"transfer-encoding: chunked, gzip"), 400),
    "chunked and gzip in two fields": (get(b"transfer-encoding: chunked", b"transfer-encoding: gzip"), 400),
    "identity": (get(b"transfer-encoding: identity"), 400),
    "an empty coding": (get(b"transfer-encoding:"), 400),
    "a coding with a parameter": (get(b"transfer-encoding: chunked;q=1"), 400),
    "chunked twice": (get(b"transfer-encoding: chunked", b"transfer-encoding: chunked"), 501),
    "chunked and an empty field": (get(b"transfer-encoding: chunked", b"transfer-encoding:"), 400),
    "chunked with vertical tab": (get(b"transfer-encoding: \x0bchunked"), 400),
    "no Host": (get(host=None), 400),
    "two Hosts": (get(b"host: x"), 400),
    "two different Hosts": (get(b"Host: y"), 400),
    "Host with a path": (get(host=b"host: x/y"), 400),
    "Host with a space": (get(host=b"host: x y"), 400),
    "Host with userinfo": (get(host=b"host: me@x"), 400),
    "Host list": (get(host=b'host: "x"'), 400),
    "HTTP/2.0": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/3.0": (get(line=b"GET / HTTP/3.0"), 505),
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "HTTP/1": (get(line=b"GET / HTTP/1"), 400),
    "HTTP/1.10": (get(line=b"GET / HTTP/1.10"), 400),
    "http/1.1": (get(line=b"GET / http/1.1"), 400),
    "another protocol": (get(line=b"GET / RTSP/1.0"), 400),
    "two spaces": (get(line=b"GET  / HTTP/1.1"), 400),
    "a tab": (get(line=b"GET\t/ HTTP/1.1"), 400),
    "trailing space": (get(line=b"GET / HTTP/1.1 "), 400),
    "space in the target": (get(line=b"GET /a b HTTP/1.1"), 400),
    "non-ASCII target": (get(line="GET /ä HTTP/1.1".encode()), 400),
    "no target": (get(line=b"GET HTTP/1.1"), 400),
    "bad character in the method": (get(line=b"G{T / HTTP/1.1"), 400),
    "colon in the method": (get(line=b"GET: / HTTP/1.1"), 400),
    "leading space": (b" " + GET, 400),
    "binary": (b"\xff\xfe\xfd", 400),
    "unknown Expect": (get(b"expect: a miracle"), 417),
    "Expect with more": (get(b"expect: 100-continue, more"), 417),
    "bad chunk size": (CHUNKED_POST + b"xyz\r\nabc\r\n", 400),
    "chunk size with a sign": (CHUNKED_POST + b"+3\r\nabc\r\n0\r\n\r\n", 400),
    "negative chunk size": (CHUNKED_POST + b"-3\r\nabc\r\n0\r\n\r\n", 400),
    "chunk size with 0x": (CHUNKED_POST + b"0x3\r\nabc\r\n0\r\n\r\n", 400),
    "chunk size with underscore": (CHUNKED_POST + b"1_0\r\n", 400),
    "chunk size with a leading space": (CHUNKED_POST + b" 3\r\nabc\r\n0\r\n\r\n", 400),
    "empty chunk size": (CHUNKED_POST + b"\r\nabc\r\n0\r\n\r\n", 400),
    "chunk size that is too long": (CHUNKED_POST + b"0" * 30 + b"3\r\nabc\r\n0\r\n\r\n", 400),
    "chunk line with bare LF": (CHUNKED_POST + b"3\nabc\r\n0\r\n\r\n", 400),
    "chunk extension with bare LF": (CHUNKED_POST + b"3;\nabc\r\n0\r\n\r\n", 400),
    "chunk longer than its size": (CHUNKED_POST + b"3\r\nabcd\r\n0\r\n\r\n", 400),
    "chunk that ends in bare LF": (CHUNKED_POST + b"3\r\nabc\n0\r\n\r\n", 400),
    "chunk that ends in any two bytes": (CHUNKED_POST + b"3\r\nabcXX0\r\n\r\n", 400),
    "last chunk that ends in bare LF": (CHUNKED_POST + b"3\r\nabc\r\n0\r\n\n" + GET, 400),
    "last chunk of a pure bare LF trailer": (CHUNKED_POST + b"0\r\nt: 1\n\n" + GET, 400),
    "trailer that ends in LF CRLF": (CHUNKED_POST + b"0\r\nt: 1\n\r\n" + GET, 400),
    "trailer that ends in CRLF LF": (CHUNKED_POST + b"0\r\nt: 1\r\n\n" + GET, 400),
    "bad trailer": (CHUNKED_POST + b"0\r\nt t: 1\r\n\r\n", 400),
    "folded trailer": (CHUNKED_POST + b"0\r\nt: 1\r\n 2\r\n\r\n", 400),
    "trailer with a control character": (CHUNKED_POST + b"0\r\nt: \x01\r\n\r\n", 400),
    "chunk extension with bare CR": (CHUNKED_POST + b"3;a\rb\r\nabc\r\n0\r\n\r\n", 400),
    "chunk extension with NUL": (CHUNKED_POST + b"3;a\0\r\nabc\r\n0\r\n\r\n", 400),
    "chunk extension with an open quote": (CHUNKED_POST + b'3;a="b\r\nabc\r\n0\r\n\r\n', 400),
    "chunk beyond 2**63 - 1": (CHUNKED_POST + b"8000000000000000\r\n", 400),
    "Content-Length beyond 2**63 - 1": (get(b"content-length: 9223372036854775808"), 400),
    "query with a URL": (get(line=b"GET a?b=http://x/scope HTTP/1.1"), 400),
    "path with a scheme": (get(line=b"GET a/b://x/ HTTP/1.1"), 400),
    "asterisk with a scheme": (get(line=b"GET *://x/ HTTP/1.1"), 400),
    "asterisk without OPTIONS": (get(line=b"GET * HTTP/1.1"), 400),
    "authority without CONNECT": (get(line=b"GET x:80 HTTP/1.1"), 400),
    "URL without a host": (get(line=b"GET http:///a HTTP/1.1"), 400),
    "URL with userinfo": (get(line=b"GET http://me@x/ HTTP/1.1"), 400),
    "URL of another scheme": (get(line=b"GET ftp://x/ HTTP/1.1"), 400),
    "fragment": (get(line=b"GET /a#b HTTP/1.1"), 400),
    "CONNECT": (get(line=b"CONNECT x:443 HTTP/1.1"), 501),
    "CONNECT of a path": (get(line=b"CONNECT / HTTP/1.1"), 501),
    "Host with an open bracket": (get(host=b"host: [::1"), 400),
    "Host with two ports": (get(host=b"host: a:80:80"), 400),
    "Host with a broken escape": (get(host=b"host: %zz"), 400),
    "method that is too long": (get(line=b"A" * 65 + b" / HTTP/1.1"), 400),
    "SSH": (b"SSH-2.0-OpenSSH_9.6\r\n", 400),
    "SMTP": (b"EHLO x\r\n", 400),
    "Redis": (b"*1\r\n$4\r\nPING\r\n", 400),
    "letters without an end": (b"A" * 65, 400),
    "another name than HTTP": (b"GET / HTTZ", 400),
    "no name at all": (b"GET / \r", 400),
}


@pytest.mark.parametrize(("data", "status"), BAD.values(), ids=BAD.keys())
def test_malformed_and_ambiguous_requests_are_refused(data: bytes, status: int) -> None:
    bad = refused(data)
    assert bad.status == status
    assert bad.reason is Reason.PROTOCOL_ERROR
    assert bad.detail


@pytest.mark.parametrize(("data", "status"), BAD.values(), ids=BAD.keys())
def test_malformed_requests_are_refused_after_a_good_one_too(data: bytes, status: int) -> None:
    assert refused(GET + data).status == status


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (get(host=None), "the Host header is missing"),
        (get(host=None, line=b"BREW /x HTTP/1.1"), "the Host header is missing"),
        (get(host=None, line=b"GET http://x/ HTTP/1.1"), "the Host header is missing"),
        (get(b"Host: y"), "more than one Host"),
        (get(b"host: x", line=b"GET / HTTP/1.0"), "more than one Host"),
        (post(5, b"content-length: 6"), "more than one Content-Length"),
        (get(b"content-length: +5"), "Content-Length is not a number"),
        (get(b"content-length: " + b"9" * 50), "Content-Length is not a number"),
        (
            get(b"transfer-encoding: gzip"),
            "the last Transfer-Encoding is not `chunked`: where the body ends is unknown",
        ),
        (get(b"transfer-encoding: chunked, chunked"), "the only Transfer-Encoding that is supported is `chunked`"),
        (get(b"transfer-encoding: gzip, chunked"), "the only Transfer-Encoding that is supported is `chunked`"),
    ],
)
def test_a_refusal_names_the_field_that_is_wrong(data: bytes, detail: str) -> None:
    assert refused(data).detail == detail


@pytest.mark.parametrize("data", [data for data, _ in BAD.values()], ids=BAD.keys())
def test_a_refusal_quotes_no_bytes_of_the_client(data: bytes) -> None:
    assert "b'" not in refused(data).detail
    assert 'b"' not in refused(data).detail


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r",
        b"A" * 65,
        b"GET / HTTZ",
        b"GET / \r",
        b"GET /\r",
        b"GET  ",
        b"\x80",
        b"\x03\x00\x00\x13\x0e",
        b"G\0",
        b"GET / HTTP/1.1\r\nhost: x\r\n ",
        b"GET / HTTP/1.1\r\nhost\r",
        b"GET / HTTP/1.1\r\nhost: \0",
        b"\rG",
        b"\r\n\rG",
    ],
)
def test_an_incomplete_head_that_cannot_become_valid_is_refused_at_once(data: bytes) -> None:
    for before in (b"", GET):
        refused(before + data)
        with pytest.raises(BadRequest):
            parse(*by_byte(before), data)


@pytest.mark.parametrize("size", range(1, len(GET)))
def test_an_incomplete_head_that_can_become_valid_is_awaited(size: int) -> None:
    assert parse(GET[:size]) == parse(*by_byte(GET[:size])) == []
    assert parse(b"\r\n\r\n" + GET[:size]) == parse(GET + GET[:size])[1:] == []


@pytest.mark.parametrize(
    "before", [b"", GET, GET * 3, post(5) + b"hello", CHUNKED_POST + b"1\r\nx\r\n0\r\n\r\n", b"\r\n"]
)
def test_a_pipelined_head_is_read_at_every_segmentation(before: bytes) -> None:
    head = get(b"a: b\tc", b"d:", line=b"GET /1 HTTP/1.1")
    expected = parse(before + head + GET)
    for cut in range(len(before), len(before + head) + 1):
        for second in range(cut, len(before + head) + 1):
            assert parse((before + head)[:cut], (before + head)[cut:second], (before + head + GET)[second:]) == expected


@pytest.mark.parametrize("before", [b"", GET, GET * 3, post(5) + b"hello", b"\r\n"])
@pytest.mark.parametrize("bad", [b"GET /\0 HTTP/1.1\r\n", b"GET / HTTP/1.1\nx", b"GET / HTTP/1.1\r\na: b\rc", b"GET\r"])
def test_a_malformed_pipelined_head_is_refused_at_every_segmentation(before: bytes, bad: bytes) -> None:
    stream = before + bad
    for cut in range(len(before), len(stream) + 1):
        for second in range(cut, len(stream) + 1):
            with pytest.raises(BadRequest):
                parse(stream[:cut], stream[cut:second], stream[second:])


@pytest.mark.parametrize(
    ("data", "is_head"),
    [
        (b"HEAD", False),
        (b"HEAD ", True),
        (b"HEADS /", False),
        (b"GET HEAD ", False),
        (b"HEAD / HTTP/1.1\r\na", True),
        (b"\r\nHEAD / HTTP/1.1\r\n", True),
        (GET + b"HEAD / HTTP/1.1\r\n", True),
        (GET + b"HEAD / HTTP/1.1\r\n\r\n", True),
        (get(line=b"HEAD / HTTP/1.1") + b"GET / HTTP/1.1\r\n\r\n", False),
        (get(b"content-length: 9", line=b"HEAD / HTTP/1.1"), True),
        (get(b"content-length: x", line=b"HEAD / HTTP/1.1"), True),
        (get(line=b"HEAD http:/ HTTP/1.1"), True),
        (get(b"expect: x", line=b"HEAD / HTTP/1.1"), True),
        (get(b"a: " + b"b" * 200, line=b"HEAD / HTTP/1.1"), True),
        (b"HEAD /" + b"b" * 200, True),
    ],
)
@pytest.mark.parametrize("name", PARSERS)
def test_the_parser_knows_whether_a_refused_or_incomplete_request_is_a_head(
    name: str, data: bytes, is_head: bool
) -> None:
    parser = RequestParser(Limits(max_head=150, max_body=5), head_parser(name))
    parser.feed(data)
    with contextlib.suppress(BadRequest):
        while parser.next_request() is not None:
            continue
    assert parser.asks_for_head is is_head


def test_a_tls_hello_is_told_that_this_is_not_tls() -> None:
    bad = refused(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert bad.status == 400
    assert "not TLS" in bad.detail


def test_bytes_that_begin_no_request_are_refused_at_the_first_one() -> None:
    assert refused(b"\x16").status == 400
    assert refused(b"{").status == 400
