"""The limits of a head and of a body, and the two parsers on mutated requests."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deadlined.http import BadRequest, Limits, Reason
from deadlined.http.wire.head import _hosts, build_request, check_bytes
from deadlined.http.wire.request import RequestParser
from tests.support.examples import examples
from tests.support.http import CHUNKED_POST, GET, chunk, post
from tests.support.requests import by_byte, get, one, parse, refused


def test_a_head_may_fill_its_limit_and_no_more() -> None:
    limits = Limits(max_head=len(GET))
    assert len(parse(GET, limits=limits)) == 1
    bad = refused(get(b"a:"), limits)
    assert (bad.status, bad.reason) == (431, Reason.HEADER_TOO_LARGE)


def test_a_head_that_is_too_long_is_refused_before_it_is_complete() -> None:
    parser = RequestParser(Limits(max_head=100))
    parser.feed(b"GET /" + b"a" * 95)
    assert parser.next_request() is None
    parser.feed(b"a")
    with pytest.raises(BadRequest) as caught:
        parser.next_request()
    assert (caught.value.status, caught.value.reason) == (414, Reason.HEADER_TOO_LARGE)


@pytest.mark.parametrize("surplus", [0, 1, 1000])
def test_a_request_line_beyond_the_limit_is_414_and_a_longer_head_is_431(surplus: int) -> None:
    limits = Limits(max_head=100)
    line = b"GET /" + b"a" * (98 - 14) + b" HTTP/1.1"
    bad = refused(get(b"a: " + b"b" * surplus, line=line), limits)
    assert (len(line), bad.status, bad.reason) == (98, 431, Reason.HEADER_TOO_LARGE)
    for longer in (b"GET /" + b"a" * (99 - 14 + surplus) + b" HTTP/1.1", b"GET /" + b"a" * (96 + surplus)):
        bad = refused(get(line=longer), limits)
        assert (bad.status, bad.reason) == (414, Reason.HEADER_TOO_LARGE)


def test_what_follows_a_head_does_not_count_against_it() -> None:
    assert len(parse(GET * 50 + post(5) + b"hello", limits=Limits(max_head=80))) == 51


@pytest.mark.parametrize("number", [1, 2, 100])
def test_the_number_of_fields_may_reach_its_limit_and_no_more(number: int) -> None:
    limits = Limits(max_headers=number)
    fields = [b"a: b"] * (number - 1)
    assert len(one(get(*fields), limits).headers) == number
    bad = refused(get(*fields, b"c: d"), limits)
    assert (bad.status, bad.reason) == (431, Reason.HEADER_TOO_LARGE)


def test_a_limit_of_inf_is_off() -> None:
    inf = float("inf")
    fields = [b"a: " + b"b" * 1000] * 500
    assert len(one(get(*fields), Limits(max_head=inf, max_headers=inf)).headers) == 501


def test_a_body_that_is_announced_too_long_is_refused_with_its_head() -> None:
    limits = Limits(max_body=5)
    assert parse(post(5) + b"hello", limits=limits)[0][1] == b"hello"
    parser = RequestParser(limits)
    parser.feed(post(6))
    with pytest.raises(BadRequest) as caught:
        parser.next_request()
    assert caught.value.status == 413


def test_a_chunked_body_is_refused_where_it_becomes_too_long() -> None:
    limits = Limits(max_body=5)
    data = CHUNKED_POST + chunk(b"hel") + chunk(b"lo")
    assert parse(data + chunk(b""), limits=limits)[0][1] == b"hello"
    assert refused(data + chunk(b"!"), limits).status == 413


@pytest.mark.parametrize("start", [b"3;" + b"x" * 400, b"0" * 400, b"0\r\nt: " + b"x" * 400])
def test_a_line_between_chunks_that_does_not_end_is_refused(start: bytes) -> None:
    parser = RequestParser(Limits(max_head=200))
    parser.feed(CHUNKED_POST + start)
    assert parser.next_request() is not None
    with pytest.raises(BadRequest):
        parser.next_body()


def test_the_largest_length_is_awaited() -> None:
    parser = RequestParser(Limits())
    parser.feed(get(b"content-length: 9223372036854775807"))
    request = parser.next_request()
    assert request is not None
    assert (request.content_length, parser.next_body()) == (2**63 - 1, None)


@pytest.mark.parametrize("cut", range(1, len(GET)))
def test_bytes_fed_between_two_pipelined_requests_complete_the_second(cut: int) -> None:
    parser = RequestParser(Limits())
    parser.feed(GET + GET[:cut])
    assert parser.next_request() is not None
    parser.feed(GET[cut:])
    assert parser.buffered == len(GET)
    assert parser.next_request() is not None
    assert parser.next_request() is None


def test_a_huge_chunk_is_given_out_as_it_arrives() -> None:
    parser = RequestParser(Limits())
    parser.feed(CHUNKED_POST + b"7fffffffffffffff\r\n")
    parser.next_request()
    for _ in range(100):
        parser.feed(bytes(65536))
        assert parser.next_body() == bytes(65536)
    assert parser.next_body() is None


UPGRADE = b"OPTIONS * HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n"


SEEDS = (GET, CHUNKED_POST, post(3, b"a: b") + b"abc", UPGRADE)


# what a mutation may insert anywhere: bytes and strings on which parsers disagree
SPICES = (
    *(bytes([code]) for code in range(256)),
    *(b"\r\n", b"\r\n ", b" : ", b"HTTP/1.0", b"HTTP/1.1", b"HTTP/9.9", b"CONNECT", b"get", b"http://x/", b"#", b"?"),
    *(b"\r\ntransfer-encoding: chunked", b"\r\nContent-Length: 3", b"\r\nhost: y"),
    *(b"\r\nconnection: close", b"\r\nupgrade: x", b"\r\nTransfer-Encoding: ChUnKeD", b"\r\nhost: [::1"),
    *(
        b"*",
        b"://",
        b"http:///",
        b"https://y",
        b"x:80",
        b"OPTIONS ",
        b"HEAD ",
        b";a=b",
        b';a="',
        b"9223372036854775808",
    ),
)


EDITS = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 3), st.sampled_from(SPICES)), min_size=1, max_size=3)


LINES = st.lists(
    st.sampled_from([*(bytes([code]) for code in range(256)), b"a: b", b"\r\n", b"\r\n", b"\r\nc: d"]), max_size=30
)


def is_plain(head: bytes) -> bool:
    """Return True if `check_bytes` must accept `head`, decided line by line."""
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    printable = all(byte == 9 or (byte >= 32 and byte != 127) for line in lines for byte in line)
    return printable and all(lines) and not any(line.startswith((b" ", b"\t")) for line in lines[1:])


@given(LINES)
@example([b"a: b", b"\t", b"\xa0"])
@example([b"a: b", b"\r", b"\r\n", b"\n"])
@example([b"a: b", b"\x7f"])
@settings(max_examples=examples(500))
def test_check_bytes_refuses_what_a_check_of_every_line_refuses(pieces: list[bytes]) -> None:
    # a head begins with no empty line, and ends with the first
    data = b"G" + b"".join(pieces) + b"\r\n\r\n"
    head = data[: data.index(b"\r\n\r\n") + 4]
    try:
        check_bytes(head, head.decode("latin-1"), Limits(max_headers=math.inf))
    except BadRequest:
        assert not is_plain(head)
    else:
        assert is_plain(head)


def test_hosts_that_are_made_up_do_not_fill_the_memory() -> None:
    for number in range(1100):
        assert build_request("GET", b"/", "1.1", [(b"host", b"h%d" % number)]).keep_alive
    assert build_request("GET", b"/", "1.1", [(b"host", b"h" * 5000)]).keep_alive
    assert len(_hosts) <= 1000
    assert max(map(len, _hosts)) < 256
    with pytest.raises(BadRequest, match="not a host"):
        build_request("GET", b"/", "1.1", [(b"host", b"a/b")])


@given(st.sampled_from(SEEDS), EDITS)
@settings(max_examples=examples(1000), deadline=None)
def test_both_parsers_read_and_refuse_the_same(seed: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    data = seed
    for place, cut, spice in edits:
        data = data[:place] + spice + data[place + cut :]
    try:
        messages = parse(data)
    except BadRequest:
        with pytest.raises(BadRequest):
            parse(*by_byte(data))
    else:
        assert parse(*by_byte(data)) == messages
