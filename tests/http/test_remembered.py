"""What the readers and writers of heads remember of fields: little, and nothing that belongs to one client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deadlined.http import Limits, ResponseError
from deadlined.http.wire import (
    RequestParser,
    head,
    plain_head,
    remembered,
    request_head,
    request_writer,
    response,
    response_head,
)
from deadlined.http.wire.remembered import LONG, MANY, is_secret
from tests.support.requests import get, one


def write_request(name: bytes, value: bytes) -> bytes:
    return request_head("GET", b"/", [(name, value)])


def write_response(name: bytes, value: bytes) -> bytes:
    writer = response.ResponseWriter("GET", "1.1", False)
    writer.start(200, [(name, value)])
    return writer.body(b"", False, b"", b"")[0]


def read_request(name: bytes, value: bytes) -> bytes:
    parser = RequestParser(Limits())
    parser.feed(b"GET / HTTP/1.0\r\n%b: %b\r\n\r\n" % (name, value))
    request = parser.next_request()
    assert request is not None
    return b"\r\n%b: %b\r\n" % request.headers[0]


def read_response(name: bytes, value: bytes) -> bytes:
    head = response_head.read_head(b"HTTP/1.1 200 OK\r\n%b: %b\r\n\r\n" % (name, value), Limits())
    return b"\r\n%b: %b\r\n" % head.headers[0]


PLACES: list[tuple[Callable[[bytes, bytes], bytes], dict[Any, Any]]] = [
    (write_request, request_writer._lines),
    (write_response, response._lines),
    (read_request, plain_head._lines._known),
    (read_response, response_head._lines._known),
]
each_place = pytest.mark.parametrize(
    ("use", "known"), PLACES, ids=["write request", "write response", "read request", "read response"]
)


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    for _, known in PLACES:
        known.clear()


@each_place
def test_a_field_is_the_same_the_second_time(use: Callable[[bytes, bytes], bytes], known: dict[Any, Any]) -> None:
    first = use(b"x-a", b"b")
    assert b"\r\nx-a: b\r\n" in first
    assert len(known) == 1
    assert use(b"x-a", b"b") == first
    assert b"\r\nx-a: c\r\n" in use(b"x-a", b"c")
    assert len(known) == 2


@each_place
def test_fields_that_somebody_makes_up_do_not_fill_the_memory(
    use: Callable[[bytes, bytes], bytes], known: dict[Any, Any]
) -> None:
    for number in range(2 * MANY + 10):
        use(b"x", b"%d" % number)
    assert len(known) == 10
    # and do not keep others from being remembered
    use(b"y", b"z")
    assert len(known) == 11


@each_place
def test_a_long_field_is_handled_and_not_kept(use: Callable[[bytes, bytes], bytes], known: dict[Any, Any]) -> None:
    assert b": " + bytes([97]) * LONG in use(b"x", b"a" * LONG)
    assert b"x" * LONG + b": " in use(b"x" * LONG, b"a")
    assert known == {}


SECRET = [
    *(b"set-cookie", b"cookie", b"authorization", b"proxy-authorization", b"authentication-info", b"www-authenticate"),
    *(b"x-api-key", b"api-key", b"x-auth-token", b"private-token", b"x-vault-token", b"x-csrf-token", b"x-xsrf-token"),
    *(b"x-session-id", b"x-client-secret", b"x-password", b"sec-websocket-protocol", b"referer", b"location"),
]


@each_place
@pytest.mark.parametrize("name", SECRET)
@pytest.mark.parametrize("upper", [True, False])
def test_what_may_be_secret_is_not_kept(
    use: Callable[[bytes, bytes], bytes], known: dict[Any, Any], name: bytes, upper: bool
) -> None:
    assert b": secret\r\n" in use(name.title() if upper else name, b"secret")
    assert known == {}


@pytest.mark.parametrize(
    "name", [b"host", b"user-agent", b"accept", b"accept-language", b"content-location", b"x-forwarded-for", b"x", b""]
)
def test_what_is_not_secret_by_its_name_may_be_kept(name: bytes) -> None:
    for _ in range(2):
        assert not is_secret(name)


def test_names_that_somebody_makes_up_do_not_fill_the_memory() -> None:
    for number in range(2 * MANY):
        assert not is_secret(b"x-%d" % number)
        assert is_secret(b"x-token-%d" % number)
    assert is_secret(b"x" * LONG + b"token")
    assert len(remembered._secret) <= MANY
    assert max(map(len, remembered._secret)) <= LONG


def test_hosts_that_somebody_makes_up_do_not_keep_others_from_being_remembered() -> None:
    for number in range(2 * MANY):
        one(get(host=b"host: h%d" % number))
    one(get(host=b"host: real.example"))
    assert b"real.example" in head._hosts
    assert len(head._hosts) <= MANY


@each_place
@pytest.mark.parametrize("value", [b"a\r\nb: c", b"a\nb", b"a\rb", b"a\0"])
def test_a_refused_field_is_refused_again(
    use: Callable[[bytes, bytes], bytes], known: dict[Any, Any], value: bytes
) -> None:
    if use in (read_request, read_response) and value == b"a\r\nb: c":
        # these are two lines
        return
    for _ in range(2):
        with pytest.raises(Exception, match=r"line end|control|CRLF"):
            use(b"x", value)
    assert known == {}


@pytest.mark.parametrize(
    "pair", [(b"a", bytearray(b"b")), [b"a", b"b"], (bytearray(b"a"), memoryview(b"b")), (b"a", b"b")]
)
def test_a_response_takes_any_sequence_of_anything_like_bytes(pair: Any) -> None:
    for _ in range(2):
        writer = response.ResponseWriter("GET", "1.1", False)
        writer.start(200, [pair])
        assert b"\r\na: b\r\n" in writer.body(b"", False, b"", b"")[0]


@pytest.mark.parametrize("pair", [("a", b"b"), (b"a", "b"), (b"a", 5), (b"a",), (b"a", b"b", b"c"), None, (b"a", [1])])
def test_a_response_takes_nothing_else(pair: Any) -> None:
    writer = response.ResponseWriter("GET", "1.1", False)
    with pytest.raises(ResponseError, match="pairs of bytes"):
        writer.start(200, [pair])
    writer.start(200, [(b"a", b"b")])
