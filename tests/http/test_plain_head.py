"""Plain heads: read without a parser, and as the parsers read them, whatever was read before."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deadlined.http import BadRequest, Limits, Request, head_parser
from deadlined.http.wire import RequestParser, plain_head
from tests.support.examples import examples
from tests.support.requests import PARSERS, as_tuple, get, parsed_by, read_head

BROWSER = get(b"User-Agent: Mozilla/5.0", b"accept:  */*\t", b"Cookie: a=b", b"Connection: Keep-Alive, X")


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    plain_head._lines._known.clear()


class Counting:
    """A parser that notes what it is given."""

    def __init__(self) -> None:
        self._parse = head_parser("h11")
        self.heads: list[bytes] = []

    def __call__(self, head: bytes) -> Request:
        self.heads.append(head)
        return self._parse(head)


def read(data: bytes, parse: Counting, limits: Limits | None = None) -> tuple[object, ...]:
    parser = RequestParser(limits or Limits(), parse)
    parser.feed(data)
    request = parser.next_request()
    assert request is not None
    return as_tuple(request)


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1",
        b"DELETE /a/b?c[]=%20&d HTTP/1.1",
        b'OPTIONS /{"a"}|^` HTTP/1.0',
        b"HEAD //x HTTP/1.1",
        b"PATCH /a?b?c HTTP/1.1",
    ],
)
def test_a_plain_head_is_read_without_the_parser(line: bytes) -> None:
    parse = Counting()
    head = line + b"\r\n" + BROWSER.split(b"\r\n", 1)[1]
    for _ in range(2):
        assert read(head, parse) == parsed_by("h11", head, Limits())
    assert parse.heads == []


@pytest.mark.parametrize(
    "line",
    [b"BREW / HTTP/1.1", b"get / HTTP/1.1", b"OPTIONS * HTTP/1.1", b"GET http://x/y HTTP/1.1", b"GET / HTTP/1.7"],
)
def test_any_other_request_line_is_left_to_the_parser(line: bytes) -> None:
    parse = Counting()
    head = line + b"\r\n" + BROWSER.split(b"\r\n", 1)[1]
    try:
        read(head, parse)
    except BadRequest as bad:
        assert (bad.status, bad.detail, bad.reason) == parsed_by("h11", head, Limits())
    assert parse.heads == [head]


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ([b"content-length: 5", b"content-length: 5"], "more than one Content-Length"),
        ([b"content-length: 5", b"transfer-encoding: chunked"], "Transfer-Encoding beside Content-Length"),
        ([b"host: x"], "more than one Host"),
        ([b"a b: c"], "a header field is malformed"),
    ],
)
def test_a_refusal_is_the_parsers(fields: list[bytes], detail: str) -> None:
    for field in fields[:1]:
        read_head(get(field), Limits())
    parse = Counting()
    for _ in range(2):
        with pytest.raises(BadRequest, match=detail):
            read(get(*fields), parse)
    assert len(parse.heads) == 2


def test_an_application_that_changes_its_headers_changes_them_for_itself() -> None:
    parser = RequestParser(Limits())
    parser.feed(BROWSER + BROWSER)
    first = parser.next_request()
    assert first is not None
    before = list(first.headers)
    first.headers.clear()
    second = parser.next_request()
    assert second is not None
    assert second.headers == before


def test_the_limit_on_fields_holds_for_lines_that_are_remembered() -> None:
    parse = Counting()
    head = get(b"a: b", b"c: d")
    assert read(head, parse, Limits(max_headers=3)) == read(head, parse)
    with pytest.raises(BadRequest, match="more than 2 header fields"):
        read(head, parse, Limits(max_headers=2))


def test_a_memory_that_becomes_full_within_a_head_loses_no_field() -> None:
    limits = Limits(max_headers=2000, max_head=100_000)
    many = [b"a%d: b" % number for number in range(900)]
    head = get(*many[:450], *[b"b%d: b" % number for number in range(300)], *many[450:])
    for _ in range(3):
        read_head(get(*many), limits)
        assert read_head(head, limits) == parsed_by("h11", head, limits)


METHODS = [b"GET", b"POST", b"OPTIONS", b"get", b"BREW", b"CONNECT"]
TARGETS = [
    *(b"/", b"/a?b=%41", b"//x/y", b"*", b"http://y/z?q", b"/a#b", b'/"<>\\^`{|}', b"/\x80", b"/\xff", b"/\x7f"),
    *(b"/\t", b"/a b", b"x:80", b"", b"?", b"/\x85", b"/\xa0"),
]
VERSIONS = [b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"http/1.1"]
BYTES = st.binary(max_size=3)
LINES = st.one_of(
    st.sampled_from(
        [
            *(b"Host: x", b"host: y:80", b"HOST:", b"host: a/b", b"a: b", b"A: b ", b"a:\tb", b"a:", b"a:\xff"),
            *(b"Content-Length: 5", b"content-length: 05", b"content-length: 5, 5", b"content-length: -1"),
            *(b"Transfer-Encoding: chunked", b"transfer-encoding: gzip, chunked", b"Transfer-Encoding: Chunked"),
            *(b"Connection: close", b"connection: keep-alive", b"Connection: Upgrade", b"Upgrade: websocket"),
            *(b"Expect: 100-continue", b"expect: more", b"te: trailers", b"proxy-connection: close", b"a: b:c"),
            *(b" folded", b"\tfolded", b"a b: c", b"a : b", b": b", b"nothing", b"a: \x00", b"a: b\rc"),
            *(b"a: b\nc: d", b"\xe9: b", b"a: \xc2\xa0", b"a: \x85b", b"a:\xa0", b"\xc0\x80: a"),
        ]
    ),
    st.builds(lambda a, b, c, d: b"%b-a%b:%bx%b" % (a, b, c, d), BYTES, BYTES, BYTES, BYTES),
)
HEADS = st.builds(
    lambda method, target, version, lines: b"\r\n".join([b" ".join([method, target, version]), *lines, b"", b""]),
    st.sampled_from(METHODS), st.sampled_from(TARGETS), st.sampled_from(VERSIONS), st.lists(LINES, max_size=6),
)  # fmt: skip


def first_head(data: bytes) -> bytes:
    """Cut at the first empty line, which a line of random bytes may have made."""
    return data[: data.index(b"\r\n\r\n") + 4]


@pytest.mark.parametrize("name", PARSERS)
@given(st.lists(HEADS, min_size=1, max_size=5), st.lists(LINES, max_size=8))
@example([b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"], [])
@settings(max_examples=examples(2000))
def test_whatever_was_read_before_a_head_is_read_as_the_parsers_read_it(
    name: str, heads: list[bytes], singles: list[bytes]
) -> None:
    plain_head._lines._known.clear()
    limits = Limits()
    # each line remembered by itself, if it can be
    for line in singles:
        read_head(first_head(b"GET / HTTP/1.0\r\n" + line + b"\r\n\r\n"), limits)
    for head in map(first_head, heads):
        assert read_head(head, limits) == parsed_by(name, head, limits)
