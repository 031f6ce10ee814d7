"""Writing responses as bytes: their framing, and the checks before anything is sent."""

from __future__ import annotations

import json
import math
from http import HTTPStatus

import h11
import pytest

from deadlined.http import ResponseError
from deadlined.http.wire.response import CONTINUE, LARGE, ResponseWriter, canned, date_line, keep_alive_lines

DATE = b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
KEEP = b"connection: keep-alive\r\nkeep-alive: timeout=75\r\n"
# beside other options of the connection
KEEP_FIELD = b"keep-alive: timeout=75\r\n"

Headers = list[tuple[bytes, bytes]]


def writer(method: str = "GET", version: str = "1.1", close: bool = False) -> ResponseWriter:
    return ResponseWriter(method, version, close)


def written(
    out: ResponseWriter, *pieces: bytes, status: int = 200, headers: Headers | None = None, more: bool = False
) -> list[bytes]:
    """Return the bytes for each piece of body; the last piece ends the response unless `more`."""
    out.start(status, headers or [])
    last = len(pieces) - 1
    return [b"".join(out.body(piece, more or i < last, DATE, KEEP)) for i, piece in enumerate(pieces)]


def head(data: bytes) -> list[bytes]:
    """Return the lines of the head that `data` begins with."""
    return data[: data.index(b"\r\n\r\n")].split(b"\r\n")


def test_one_piece_of_body_makes_one_piece_of_bytes_with_its_length() -> None:
    (data,) = written(writer(), b"hello", headers=[(b"X-A", b"b")])
    assert data == (
        b"HTTP/1.1 200 OK\r\nX-A: b\r\ncontent-length: 5\r\n" + DATE + KEEP + b"\r\nhello"
    )  # fmt: skip


def test_a_large_piece_of_body_is_handed_on_as_it_is() -> None:
    body = bytes(LARGE)
    out = writer()
    out.start(200, [(b"content-length", b"%d" % (2 * LARGE + 1))])
    before, large, after = out.body(body, True, DATE, KEEP)
    assert (before.endswith(b"\r\n\r\n"), large is body, after) == (True, True, b"")
    before, large, after = out.body(body, True, DATE, KEEP)
    assert (before is body, large, after) == (True, b"", b"")
    assert out.body(b"x", False, DATE, KEEP) == (b"x", b"", b"")


@pytest.mark.parametrize(("more", "end"), [(True, b"\r\n"), (False, b"\r\n0\r\n\r\n")])
def test_a_large_chunk_is_handed_on_as_it_is(more: bool, end: bytes) -> None:
    body = bytes(LARGE)
    out = writer()
    out.start(200, [])
    assert b"chunked" in out.body(b"x", True, DATE, KEEP)[0]
    before, large, after = out.body(body, more, DATE, KEEP)
    assert (before, large is body, after) == (b"%x\r\n" % LARGE, True, end)


def test_a_large_body_is_not_sent_for_a_head() -> None:
    out = writer("HEAD")
    out.start(200, [])
    before, large, after = out.body(bytes(LARGE), False, DATE, KEEP)
    assert (before.endswith(b"\r\n\r\n"), large, after) == (True, b"", b"")


def test_an_empty_body_has_length_zero() -> None:
    (data,) = written(writer(), b"")
    assert b"content-length: 0" in head(data)


def test_nothing_leaves_before_the_first_piece_of_body() -> None:
    out = writer()
    out.start(200, [])
    assert not out.started
    assert out.status == 200
    assert out.body(b"x", False, DATE, KEEP)[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert out.started
    assert out.complete


def test_pieces_without_a_length_are_chunks() -> None:
    first, second, empty, last = written(writer(), b"hello", b"0123456789abcdef", b"", b"end")
    assert b"transfer-encoding: chunked" in head(first)
    assert not any(line.startswith(b"content-length") for line in head(first))
    assert first.endswith(b"\r\n\r\n5\r\nhello\r\n")
    assert second == b"10\r\n0123456789abcdef\r\n"
    assert empty == b""
    assert last == b"3\r\nend\r\n0\r\n\r\n"


def test_an_empty_first_piece_sends_the_head_alone() -> None:
    first, last = written(writer(), b"", b"")
    assert first.endswith(b"\r\n\r\n")
    assert last == b"0\r\n\r\n"


def test_pieces_with_a_length_are_as_they_are() -> None:
    first, second = written(writer(), b"hel", b"lo", headers=[(b"Content-Length", b"5")])
    assert b"Content-Length: 5" in head(first)
    assert first.endswith(b"\r\n\r\nhel")
    assert second == b"lo"


def test_http_1_0_gets_a_length_or_the_end_of_the_connection() -> None:
    out = writer(version="1.0")
    (data,) = written(out, b"hello")
    assert {b"content-length: 5", *KEEP.splitlines()} <= set(head(data))
    assert not out.must_close
    out = writer(version="1.0")
    first, last = written(out, b"hel", b"lo")
    assert b"connection: close" in head(first)
    assert b"transfer-encoding: chunked" not in head(first)
    assert (first[-7:], last) == (b"\r\n\r\nhel", b"lo")
    assert out.must_close


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_head_gets_the_head_of_a_get_and_no_body(version: str) -> None:
    (plain,) = written(writer("HEAD", version), b"hello")
    assert plain.endswith(b"\r\n\r\n")
    assert b"content-length: 5" in head(plain)
    (sized,) = written(writer("HEAD", version), b"", headers=[(b"content-length", b"5")])
    assert sized.endswith(b"\r\n\r\n")
    assert b"content-length: 5" in head(sized)


def test_head_may_be_streamed_without_a_byte_of_body() -> None:
    first, second, last = written(writer("HEAD"), b"hel", b"lo", b"")
    assert first.endswith(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head(first)
    assert (second, last) == (b"", b"")


def test_a_response_to_head_without_a_body_has_no_content_length() -> None:
    (data,) = written(writer("HEAD"), b"")
    assert not any(line.startswith(b"content-length") for line in head(data))


@pytest.mark.parametrize("status", [204, 304])
def test_204_and_304_have_no_body_and_no_framing(status: int) -> None:
    out = writer()
    (data,) = written(out, b"", status=status)
    assert data.endswith(b"\r\n\r\n")
    assert not any(line.startswith((b"content-length", b"transfer-encoding")) for line in head(data))
    assert not out.must_close
    first, last = written(writer(), b"not", b"sent", status=status)
    assert first.endswith(b"\r\n\r\n")
    assert last == b""


def test_a_length_is_kept_in_304_and_not_in_204() -> None:
    (kept,) = written(writer(), b"", status=304, headers=[(b"content-length", b"5")])
    assert b"content-length: 5" in head(kept)
    (dropped,) = written(writer(), b"", status=204, headers=[(b"Content-Length", b"0")])
    assert not any(line.lower().startswith(b"content-length") for line in head(dropped))


@pytest.mark.parametrize("pieces", [(b"123456",), (b"12345", b"6"), (b"12345", b"6", b"")])
def test_more_than_the_announced_length_is_an_error(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(ResponseError, match="longer than its Content-Length of 5"):
        written(writer(), *pieces, headers=[(b"content-length", b"5")])


@pytest.mark.parametrize("pieces", [(b"",), (b"1234",), (b"12", b"34")])
def test_less_than_the_announced_length_is_an_error(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(ResponseError, match="shorter than its Content-Length of 5"):
        written(writer(), *pieces, headers=[(b"content-length", b"5")])


@pytest.mark.parametrize("status", [0, 99, 100, 101, 199, 1000, -200])
def test_only_final_statuses_can_be_started(status: int) -> None:
    with pytest.raises(ResponseError, match="from 200 to 999"):
        writer().start(status, [])


@pytest.mark.parametrize(
    ("status", "line"),
    [(200, b"HTTP/1.1 200 OK"), (404, b"HTTP/1.1 404 Not Found"), (299, b"HTTP/1.1 299 "), (999, b"HTTP/1.1 999 ")],
)
def test_a_status_is_written_with_its_phrase_if_it_has_one(status: int, line: bytes) -> None:
    (data,) = written(writer(), b"", status=status)
    assert head(data)[0] == line


@pytest.mark.parametrize(
    "field",
    [
        (b"a", b"b\r\nset-cookie: evil"),
        (b"a", b"b\nset-cookie: evil"),
        (b"a", b"b\rset-cookie: evil"),
        (b"a", b"b\r\n\r\n<script>"),
        (b"a", b"b\0"),
        (b"a\r\nb", b"c"),
        (b"a: b\r\nc", b"d"),
        (b"a ", b"b"),
        (b" a", b"b"),
        (b"a:", b"b"),
        (b"", b"b"),
        (b"\xe4", b"b"),
    ],
)
def test_a_field_cannot_smuggle_another(field: tuple[bytes, bytes]) -> None:
    with pytest.raises(ResponseError, match=r"invalid name|line end"):
        writer().start(200, [(b"x", b"y"), field, (b"z", b"")])


@pytest.mark.parametrize("code", [*range(9), *range(10, 32), 127])
def test_a_value_has_no_control_character(code: int) -> None:
    """What is read by proxies and clients that refuse it, and blame the server, is refused here (RFC 9110, 5.5)."""
    for value in (bytes([code]), b"a%cb" % code):
        with pytest.raises(ResponseError, match="field b'x' of the response has a line end or other control"):
            writer().start(200, [(b"x", value)])


def test_a_tab_and_any_other_byte_may_be_in_a_value() -> None:
    value = bytes({9, *range(32, 127), *range(128, 256)})
    (data,) = written(writer(), b"", headers=[(b"a", value)])
    assert b"a: " + value + b"\r\n" in data


@pytest.mark.parametrize("value", [b"+5", b"-1", b"5, 5", b"", b"5 ", b"0x5", b"\xd9\xa5", b"five"])
def test_a_length_is_digits(value: bytes) -> None:
    with pytest.raises(ResponseError, match="Content-Length"):
        writer().start(200, [(b"content-length", value)])


def test_a_length_is_given_once() -> None:
    with pytest.raises(ResponseError, match="twice"):
        writer().start(200, [(b"content-length", b"5"), (b"Content-Length", b"5")])


def test_a_response_is_started_once() -> None:
    out = writer()
    out.start(200, [])
    with pytest.raises(ResponseError, match="twice"):
        out.start(200, [])


def test_a_response_that_failed_to_start_can_be_started_again() -> None:
    out = writer()
    with pytest.raises(ResponseError):
        out.start(200, [(b"a", b"\n")])
    assert out.status == 0
    assert written(out, b"x")


def test_nothing_is_left_of_a_start_that_failed() -> None:
    out = writer()
    with pytest.raises(ResponseError):
        out.start(200, [(b"content-length", b"5"), (b"date", b"yesterday"), (b"a", b"\n")])
    (data,) = written(out, b"four", headers=[(b"content-length", b"4")])
    assert (data[-4:], DATE[:-2] in head(data)) == (b"four", True)
    again = writer()
    with pytest.raises(ResponseError):
        again.start(200, [(b"content-length", b"5"), (b"a", b"\n")])
    assert b"content-length: 1" in head(written(again, b"x")[0])


@pytest.mark.parametrize("wrong", [b"123456", b"123"])
def test_a_piece_of_the_wrong_length_can_be_replaced_by_a_right_one(wrong: bytes) -> None:
    out = writer()
    out.start(200, [(b"content-length", b"5")])
    with pytest.raises(ResponseError):
        out.body(wrong, False, DATE, KEEP)
    assert out.body(b"12345", False, DATE, KEEP)[0].endswith(b"\r\n\r\n12345")
    assert out.complete


def test_a_body_comes_after_the_start_and_before_the_end() -> None:
    out = writer()
    with pytest.raises(ResponseError, match="before the response was started"):
        out.body(b"", False, DATE, KEEP)
    written(out, b"")
    with pytest.raises(ResponseError, match="after the response was complete"):
        out.body(b"", False, DATE, KEEP)


@pytest.mark.parametrize("value", [b"Chunked", b"gzip", b"gzip, chunked", b"identity", b""])
def test_the_transfer_encoding_of_the_application_is_ignored(value: bytes) -> None:
    first, _ = written(writer(), b"a", b"", headers=[(b"Transfer-Encoding", value)])
    assert [line for line in head(first) if line.lower().startswith(b"transfer")] == [b"transfer-encoding: chunked"]
    (whole,) = written(writer(), b"a", headers=[(b"transfer-encoding", value)])
    assert b"content-length: 1" in head(whole)
    assert not any(line.startswith(b"transfer") for line in head(whole))


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_the_seconds_that_a_connection_may_be_idle_are_named_by_connection(version: str) -> None:
    (data,) = written(writer(version=version), b"")
    assert head(data)[-2:] == [b"connection: keep-alive", b"keep-alive: timeout=75"]
    assert keep_alive_lines(75.9) == KEEP


@pytest.mark.parametrize(
    ("version", "headers", "lines"),
    [
        ("1.1", [], []),
        ("1.0", [], [b"connection: keep-alive"]),
        ("1.1", [(b"connection", b"x-hop")], [b"connection: x-hop"]),
        ("1.0", [(b"connection", b"x-hop")], [b"connection: keep-alive, x-hop"]),
    ],
)
def test_only_the_old_version_names_keep_alive_if_no_seconds_are_told(
    version: str, headers: Headers, lines: list[bytes]
) -> None:
    out = writer(version=version)
    out.start(200, headers)
    data = b"".join(out.body(b"", False, DATE, keep_alive_lines(math.inf)))
    assert head(data)[1:] == [b"content-length: 0", DATE[:-2], *lines]


@pytest.mark.parametrize("name", [b"Keep-Alive", b"keep-alive"])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_the_keep_alive_of_an_application_takes_the_place_of_the_servers(name: bytes, version: str) -> None:
    (data,) = written(writer(version=version), b"", headers=[(name, b"timeout=5"), (name, b"max=9")])
    own = [b"connection: keep-alive", b"keep-alive: timeout=5", b"keep-alive: max=9"]
    assert head(data)[1:] == [b"content-length: 0", DATE[:-2], *own]


def test_the_keep_alive_of_an_application_is_left_out_of_the_last_response() -> None:
    (data,) = written(writer(close=True), b"", headers=[(b"keep-alive", b"timeout=5")])
    assert head(data)[1:] == [b"content-length: 0", DATE[:-2], b"connection: close"]


def test_an_upgrade_is_offered_beside_the_keep_alive_of_an_application() -> None:
    (data,) = written(writer(), b"", status=426, headers=[(b"Upgrade", b"websocket"), (b"keep-alive", b"timeout=5")])
    assert head(data)[-2:] == [b"connection: keep-alive, Upgrade", b"keep-alive: timeout=5"]


def test_a_keep_alive_of_a_start_that_failed_is_forgotten() -> None:
    out = writer()
    with pytest.raises(ResponseError):
        out.start(200, [(b"keep-alive", b"timeout=5"), (b"content-length", b"x")])
    (data,) = written(out, b"")
    assert [line for line in head(data) if line.startswith(b"keep-alive")] == [KEEP_FIELD[:-2]]


@pytest.mark.parametrize(
    ("value", "sent"), [(b"close", b"close"), (b"Close", b"close"), (b"x, close", b"close, x"), (b"close,", b"close")]
)
def test_an_application_can_close_the_connection(value: bytes, sent: bytes) -> None:
    out = writer()
    (data,) = written(out, b"", headers=[(b"Connection", value)])
    assert [line for line in head(data) if line.lower().startswith(b"connection")] == [b"connection: " + sent]
    assert KEEP_FIELD[:-2] not in head(data)
    assert out.must_close


@pytest.mark.parametrize(
    ("version", "close", "lines"),
    [
        ("1.1", False, b"connection: keep-alive, X-Hop, y\r\n" + KEEP_FIELD),
        ("1.1", True, b"connection: close, X-Hop, y\r\n"),
        ("1.0", False, b"connection: keep-alive, X-Hop, y\r\n" + KEEP_FIELD),
    ],
)
def test_fields_that_an_application_names_are_for_its_connection_only(version: str, close: bool, lines: bytes) -> None:
    own = [(b"X-Hop", b"1"), (b"Connection", b"X-Hop, keep-alive"), (b"connection", b"X-Hop,\ty, ,content-length")]
    (data,) = written(writer(version=version, close=close), b"", headers=own)
    assert data == b"HTTP/1.1 200 OK\r\nX-Hop: 1\r\ncontent-length: 0\r\n" + DATE + lines + b"\r\n"


def test_a_name_that_holds_close_closes_nothing() -> None:
    out = writer()
    (data,) = written(out, b"", headers=[(b"connection", b"close-notify")])
    assert b"connection: keep-alive, close-notify" in head(data)
    assert not out.must_close


def test_a_switch_names_more_than_the_upgrade() -> None:
    data = writer().switch([(b"connection", b"x-hop"), (b"upgrade", b"y"), (b"x-hop", b"1")], DATE)
    assert b"connection: Upgrade, x-hop\r\n" in data


def test_an_application_cannot_keep_the_connection() -> None:
    out = writer(close=True)
    (data,) = written(out, b"", headers=[(b"connection", b"keep-alive")])
    assert b"connection: close" in head(data)
    assert b"connection: keep-alive" not in head(data)
    assert out.must_close


@pytest.mark.parametrize(
    ("version", "close", "lines"),
    [
        ("1.1", False, b"connection: keep-alive, Upgrade\r\n" + KEEP_FIELD),
        ("1.1", True, b"connection: close, Upgrade\r\n"),
        ("1.0", False, b"connection: keep-alive, Upgrade\r\n" + KEEP_FIELD),
        ("1.0", True, b"connection: close, Upgrade\r\n"),
    ],
)
@pytest.mark.parametrize("own", [[], [(b"Connection", b"upgrade")]], ids=["unnamed", "named"])
def test_an_upgrade_that_is_offered_is_named_once(version: str, close: bool, lines: bytes, own: Headers) -> None:
    (data,) = written(writer(version=version, close=close), b"", status=426, headers=[*own, (b"Upgrade", b"websocket")])
    start = b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\ncontent-length: 0\r\n"
    assert data == start + DATE + lines + b"\r\n"


def test_no_other_response_names_an_upgrade() -> None:
    out = writer()
    with pytest.raises(ResponseError):
        out.start(426, [(b"upgrade", b"websocket"), (b"content-length", b"x")])
    (data,) = written(out, b"", headers=[(b"connection", b"upgrade")])
    assert b"pgrade" not in data


def test_an_applications_date_is_kept() -> None:
    (data,) = written(writer(), b"", headers=[(b"Date", b"yesterday")])
    assert [line for line in head(data) if line.lower().startswith(b"date")] == [b"Date: yesterday"]


def read_by_h11(method: str, data: bytes) -> tuple[int, bytes]:
    """Return status and body of a complete response, as h11 reads it."""
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(data)
    response = reader.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while isinstance(event := reader.next_event(), h11.Data):
        body += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    assert reader.trailing_data[0] == b""
    return response.status_code, body


@pytest.mark.parametrize("length", [None, 10])
@pytest.mark.parametrize("pieces", [(b"0123456789",), (b"01234", b"56789"), (b"", b"0123456789", b"")])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("status", [200, 204, 304, 404])
def test_h11_reads_what_we_write(status: int, method: str, pieces: tuple[bytes, ...], length: int | None) -> None:
    headers = [] if length is None else [(b"content-length", b"%d" % length)]
    data = b"".join(written(writer(method), *pieces, status=status, headers=headers))
    bodiless = method == "HEAD" or status in (204, 304)
    assert read_by_h11(method, data) == (status, b"" if bodiless else b"0123456789")


@pytest.mark.parametrize("status", [400, 408, 413, 417, 431, 500, 501, 504, 505])
def test_a_canned_response_is_complete_says_why_and_closes(status: int) -> None:
    data = canned(status, "some_reason", 'because "of\\this"\r\n')
    assert b"connection: close" in head(data)
    assert b"content-type: application/problem+json" in head(data)
    answered, body = read_by_h11("GET", data)
    assert (answered, body[-1:]) == (status, b"\n")
    expected = {"status": status, "title": HTTPStatus(status).phrase}
    assert json.loads(body) == expected | {"detail": 'because "of\\this"\r\n', "reason": "some_reason"}


def test_a_canned_response_to_head_has_no_body() -> None:
    whole = canned(500, "server_error", "because")
    assert canned(500, "server_error", "because", head_only=True) == whole.split(b"\r\n\r\n")[0] + b"\r\n\r\n"


def test_the_fixed_lines_are_whole_lines() -> None:
    assert CONTINUE == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert date_line().startswith(b"date: ")
    assert date_line().endswith(b" GMT\r\n")
