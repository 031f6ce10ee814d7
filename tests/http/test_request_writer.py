"""Writing requests: what is written is read back by our own reader, and nothing else can be written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlined.http import LAST_CHUNK, Limits, chunk, request_head
from deadlined.http.wire import RequestParser
from tests.support.requests import parse

TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,12}"
HEEDED = (b"host", b"connection", b"content-length", b"transfer-encoding", b"expect", b"upgrade")


def test_a_head_has_its_line_its_fields_and_an_empty_line() -> None:
    head = request_head("POST", b"/a?b", [(b"host", b"x"), (b"accept", b""), (b"accept", b"y")])
    assert head == b"POST /a?b HTTP/1.1\r\nhost: x\r\naccept: \r\naccept: y\r\n\r\n"


@pytest.mark.parametrize("method", ["", "GET ", "GE T", "GET\r\n", "GÉT", "G(T"])
def test_a_method_is_a_token(method: str) -> None:
    with pytest.raises(ValueError, match="request line"):
        request_head(method, b"/", [])


@pytest.mark.parametrize("target", [b"", b"/ ", b"/a b", b"/\r\nhost: y", b"/\x00", b"/\x7f", b"/\xe9"])
def test_a_target_is_of_visible_ascii(target: bytes) -> None:
    with pytest.raises(ValueError, match="request line"):
        request_head("GET", target, [])


@pytest.mark.parametrize("name", [b"", b"a b", b"a:", b"a\r\nb", b"\xe9"])
def test_a_name_is_a_token(name: bytes) -> None:
    with pytest.raises(ValueError, match="name"):
        request_head("GET", b"/", [(name, b"x")])


@pytest.mark.parametrize("code", [*range(9), *range(10, 32), 127])
def test_a_value_has_no_control_character(code: int) -> None:
    for value in (bytes([code]), b"a%cb" % code):
        with pytest.raises(ValueError, match="field b'b' of the request has a line end or other control character"):
            request_head("GET", b"/", [(b"a", b"x"), (b"b", value)])


def test_a_tab_and_any_other_byte_may_be_in_a_value() -> None:
    value = bytes({9, *range(32, 127), *range(128, 256)})
    assert b"a: " + value + b"\r\n" in request_head("GET", b"/", [(b"a", value)])


def test_nothing_is_written_if_a_later_field_is_refused() -> None:
    with pytest.raises(ValueError, match="name"):
        request_head("GET", b"/", iter([(b"a", b"b"), (b"c ", b"d")]))


def test_a_body_with_a_length_is_read_back() -> None:
    parser = RequestParser(Limits())
    parser.feed(request_head("PUT", b"/", [(b"Host", b"x"), (b"Content-Length", b"3")]) + b"abc")
    request = parser.next_request()
    assert request is not None
    assert (request.method, request.content_length, parser.next_body(), parser.at_end) == ("PUT", 3, b"abc", True)


def test_a_chunk_has_its_size_in_hexadecimal() -> None:
    assert chunk(bytes(26)) == b"1a\r\n" + bytes(26) + b"\r\n"
    assert LAST_CHUNK == b"0\r\n\r\n"


def test_an_empty_chunk_is_refused_because_it_would_end_the_body() -> None:
    with pytest.raises(ValueError, match="end the body"):
        chunk(b"")


@given(
    st.from_regex(TOKEN, fullmatch=True).filter(lambda method: method != "CONNECT"),
    st.from_regex(rb"/[!-\"$-~]{0,20}", fullmatch=True),
    st.lists(
        st.tuples(
            st.from_regex(TOKEN.encode(), fullmatch=True).filter(lambda name: name.lower() not in HEEDED),
            st.from_regex(rb"([!-~\x80-\xff]([ \t!-~\x80-\xff]{0,8}[!-~\x80-\xff])?)?", fullmatch=True),
        ),
        max_size=5,
    ),
    st.lists(st.binary(min_size=1, max_size=20), max_size=4),
)
def test_what_is_written_is_read_back(
    method: str, target: bytes, fields: list[tuple[bytes, bytes]], pieces: list[bytes]
) -> None:
    framing = [(b"host", b"x"), (b"transfer-encoding", b"chunked")]
    data = request_head(method, target, [*framing, *fields]) + b"".join(map(chunk, pieces)) + LAST_CHUNK
    ((request, body),) = parse(data)
    headers = [*framing, *((name.lower(), value) for name, value in fields)]
    assert request[:5] == (method, target, target, "1.1", headers)
    assert body == b"".join(pieces)
