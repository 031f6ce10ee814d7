"""TLS between two buffers: any pieces in any segments, both ends, and what breaks it."""

from __future__ import annotations

import ssl
from array import array
from itertools import cycle
from pathlib import Path

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deadlined.net.tls_core import PIECE, RECORD, TlsCore, cut_records, describe_error
from tests.support.net import certificates
from tests.support.tls import cores, encrypt, only_tls_12, shake, shaken_cores

TALK = st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=3 * PIECE)), max_size=6)
SIZES = st.lists(st.integers(1, 3 * PIECE), min_size=1, max_size=5)


def deliver(core: TlsCore, ciphertext: bytes, segments: cycle[int], sizes: cycle[int]) -> bytes:
    """Feed ciphertext in segments, and return the plaintext that comes of it."""
    plain = b""
    while True:
        while data := core.read(next(sizes)):
            plain += data
        if data is not None or not ciphertext:
            return plain
        assert not core.holds_bytes
        segment = next(segments)
        core.feed(ciphertext[:segment])
        ciphertext = ciphertext[segment:]


@given(talk=TALK, segments=SIZES, sizes=SIZES, old=st.booleans())
@example(talk=[(True, bytes(3 * PIECE))], segments=[1], sizes=[1], old=False)
@settings(max_examples=60)
def test_any_pieces_in_any_segments_arrive_unchanged(
    talk: list[tuple[bool, bytes]], segments: list[int], sizes: list[int], old: bool
) -> None:
    one, other = shaken_cores(only_tls_12() if old else None)
    for forth, piece in talk:
        sender, receiver = (one, other) if forth else (other, one)
        assert deliver(receiver, encrypt(sender, piece), cycle(segments), cycle(sizes)) == piece
        assert not receiver.holds_bytes


@given(segments=SIZES, before=st.binary(max_size=PIECE), after=st.binary(min_size=1, max_size=PIECE))
@settings(max_examples=30)
def test_reading_goes_on_after_a_close_notify(segments: list[int], before: bytes, after: bytes) -> None:
    """Also what was received and not read when it was sent: OpenSSL would take that for an error."""
    one, other = shaken_cores()
    if before:
        other.feed(encrypt(one, before))
    other.end()
    notify = other.data_to_send()
    assert deliver(other, encrypt(one, after), cycle(segments), cycle([PIECE])) == before + after
    assert deliver(one, notify, cycle(segments), cycle([9])) == b""
    assert (one.closed, one.holds_bytes, other.closed) == (True, True, False)
    # the other direction is open until its own end
    assert deliver(other, encrypt(one, b"more"), cycle(segments), cycle([9])) == b"more"
    one.end()
    assert deliver(other, one.data_to_send(), cycle(segments), cycle([9])) == b""
    assert not other.truncated


def test_an_end_without_close_notify_is_told_apart_and_leaves_the_other_direction_open() -> None:
    one, other = shaken_cores()
    other.feed(encrypt(one, b"hel"))
    other.feed(b"")
    assert other.holds_bytes
    assert other.read(9) == b"hel"
    assert other.holds_bytes
    assert (other.read(9), other.read(9)) == (b"", b"")
    assert other.truncated
    one.feed(encrypt(other, b"still"))
    assert one.read(9) == b"still"


@pytest.mark.parametrize("size", [9, PIECE, 3 * PIECE])
@pytest.mark.parametrize("cut", [0, 1, 5, -1, None], ids=lambda cut: f"[:{cut}]")
@pytest.mark.parametrize("old", [False, True])
def test_an_end_in_the_middle_of_a_record_is_told_apart(cut: int | None, size: int, old: bool) -> None:
    one, other = shaken_cores(only_tls_12() if old else None)
    whole = encrypt(one, bytes(size))
    last = encrypt(one, b"last")[:cut]
    for piece in (whole[:100], whole[100:] + last[:2], last[2:], b""):
        other.feed(piece)
        while other.read(PIECE):
            assert not other.cut_in_record
    assert other.truncated
    assert other.cut_in_record == (last != b"" and cut is not None)


def test_a_whole_end_is_not_cut_in_a_record() -> None:
    one, other = shaken_cores()
    one.write(b"hello")
    one.end()
    other.feed(one.data_to_send())
    other.feed(b"")
    assert (other.read(9), other.read(9)) == (b"hello", b"")
    assert (other.truncated, other.cut_in_record) == (False, False)


def test_what_lies_here_is_noticed_wherever_it_lies() -> None:
    one, other = shaken_cores()
    first, second = encrypt(one, b"first"), encrypt(one, b"second")
    assert not other.holds_bytes
    # a record in OpenSSL's buffer
    other.feed(first + second)
    assert other.holds_bytes
    # a part of a record that was decrypted, and one that was not
    assert other.read(2) == b"fi"
    assert other.holds_bytes
    assert other.read(9) == b"rst"
    assert other.holds_bytes
    assert other.read(9) == b"second"
    assert not other.holds_bytes
    # more than is given to OpenSSL at a time
    other.feed(encrypt(one, bytes(5 * PIECE)))
    assert len(other.read(1 << 20) or b"") == PIECE
    assert other._incoming.pending <= PIECE
    assert other.holds_bytes


def test_records_that_openssl_was_not_given_yet_are_noticed() -> None:
    one, other = shaken_cores()
    overhead = len(encrypt(one, b"x")) - 1
    one, other = shaken_cores()
    first, second = encrypt(one, bytes(PIECE - overhead)), encrypt(one, b"second")
    assert len(first) == PIECE
    other.feed(first + second)
    assert other.read(1 << 20) == bytes(PIECE - overhead)
    assert (other._incoming.pending, other.holds_bytes) == (0, True)
    assert other.read(9) == b"second"
    assert not other.holds_bytes


def test_what_was_decrypted_for_a_close_notify_is_noticed() -> None:
    one, other = shaken_cores()
    other.feed(encrypt(one, b"hello"))
    other.end()
    assert other.holds_bytes
    assert other.read(2) == b"he"
    assert other.holds_bytes
    assert other.read(9) == b"llo"
    assert not other.holds_bytes


def test_openssls_buffers_hold_no_more_than_a_record_and_a_piece() -> None:
    one, other = shaken_cores()
    ciphertext = b""
    for _ in range(20):
        one.write(bytes(RECORD))
        assert one._outgoing.pending < RECORD + 100
        ciphertext += one.data_to_send()
    other.feed(ciphertext)
    while other.read(1 << 20):
        assert other._incoming.pending <= PIECE


def lengths(ciphertext: bytes) -> list[int]:
    """Return the lengths of the records' contents."""
    found = []
    while ciphertext:
        found.append(int.from_bytes(ciphertext[3:5], "big"))
        ciphertext = ciphertext[5 + found[-1] :]
    return found


@pytest.mark.parametrize("client", [None, only_tls_12()], ids=["1.3", "1.2"])
def test_openssls_buffer_grows_by_a_record_whose_four_thirds_hold_every_other(client: ssl.SSLContext | None) -> None:
    one, other = shaken_cores(client)
    sizes = []
    for data in (b"small", memoryview(bytes(range(256)) * (RECORD // 256)), bytes(RECORD)):
        assert one.write(data) == memoryview(data).nbytes
        ciphertext = one.data_to_send()
        sizes.append(lengths(ciphertext))
        other.feed(ciphertext)
        read = b""
        while piece := other.read(RECORD):
            read += piece
        assert read == bytes(data)
    (_,), (first, rest), (whole,) = sizes
    assert max(whole, first + 5 + rest) + 5 <= (first + 5) // 3 * 4


@given(parts=st.lists(st.binary(max_size=3 * RECORD), max_size=5), most=st.integers(0, 6 * RECORD))
@example(parts=[b"head", bytes(3 * RECORD)], most=2 * RECORD)
def test_parts_are_cut_into_full_records(parts: list[bytes], most: int) -> None:
    records = cut_records(parts, most)
    assert b"".join(records) == b"".join(parts)[:most]
    assert all(len(record) == RECORD for record in records[:-1])
    assert all(0 < len(record) <= RECORD for record in records)


def test_only_a_record_of_several_parts_is_copied() -> None:
    body = bytes(3 * RECORD)
    first, second, third, last = cut_records([b"head", body, memoryview(array("I", [1, 2]))], 1 << 20)
    assert isinstance(first, bytes)
    assert [isinstance(record, memoryview) and record.obj is body for record in (second, third)] == [True, True]
    assert last == bytes(4) + array("I", [1, 2]).tobytes()


def test_a_changed_record_breaks_the_connection_and_the_peer_is_told() -> None:
    one, other = shaken_cores()
    record = bytearray(encrypt(one, b"hello"))
    record[-1] ^= 1
    other.feed(bytes(record))
    with pytest.raises(trio.BrokenResourceError, match="a record was changed on its way") as raised:
        other.read(9)
    assert isinstance(raised.value.__cause__, ssl.SSLError)
    assert other.holds_bytes
    one.feed(other.data_to_send())
    with pytest.raises(trio.BrokenResourceError, match="the peer refuses it: bad record mac"):
        one.read(9)
    for broken in (one, other):
        with pytest.raises(trio.BrokenResourceError):
            broken.read(9)
        with pytest.raises(trio.BrokenResourceError):
            broken.write(b"x")
        broken.end()
        assert not broken.has_output


def test_a_changed_record_is_found_when_a_close_notify_is_sent() -> None:
    one, other = shaken_cores()
    record = bytearray(encrypt(one, b"hello"))
    record[-1] ^= 1
    other.feed(bytes(record))
    other.end()
    with pytest.raises(trio.BrokenResourceError):
        other.read(9)


@pytest.mark.parametrize("operation", ["read", "write"])
def test_nothing_can_be_done_before_the_handshake(operation: str) -> None:
    one, _ = cores()
    one.feed(b"\x16")
    with pytest.raises(RuntimeError, match="handshake is not done"):
        one.read(9) if operation == "read" else one.write(b"x")
    one.end()
    assert not one.has_output


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05nonsense", bytes(100), b"\x15" * 9])
def test_a_handshake_of_something_else_fails_in_words(data: bytes) -> None:
    _, server = cores()
    server.feed(data)
    with pytest.raises(trio.BrokenResourceError, match="TLS has failed: ") as raised:
        server.shake()
    assert isinstance(raised.value.__cause__, ssl.SSLError)
    assert "_" not in str(raised.value)


def test_the_end_in_the_middle_of_a_handshake_is_no_error_of_tls() -> None:
    one, server = cores()
    one.shake()
    server.feed(one.data_to_send()[:50])
    assert not server.shake()
    server.feed(b"")
    with pytest.raises(trio.BrokenResourceError, match="middle of the TLS handshake") as raised:
        server.shake()
    assert raised.value.__cause__ is None
    assert server.truncated


def test_a_certificate_that_is_not_trusted_is_refused_and_the_server_is_told() -> None:
    one, server = cores(client=ssl.create_default_context())
    one.shake()
    server.feed(one.data_to_send())
    server.shake()
    one.feed(server.data_to_send())
    with pytest.raises(trio.BrokenResourceError, match=r"certificate is not accepted: .*local issuer"):
        one.shake()
    server.feed(one.data_to_send())
    with pytest.raises(trio.BrokenResourceError, match="the peer refuses it: unknown ca"):
        server.shake()


def test_no_version_in_common_is_said_in_words() -> None:
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    strict.minimum_version = ssl.TLSVersion.TLSv1_3
    one, server = cores(client=only_tls_12(), server=strict)
    one.shake()
    server.feed(one.data_to_send())
    with pytest.raises(trio.BrokenResourceError, match="no version of TLS is accepted by both sides"):
        server.shake()


def with_tickets(count: int) -> ssl.SSLContext:
    """Return a server's context that sends so many session tickets, of about 250 bytes each, after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = count
    certificates().identify(context)
    return context


def test_a_peer_that_sends_messages_of_tls_without_end_is_refused() -> None:
    one, other = cores(server=with_tickets(1000))
    with pytest.raises(trio.BrokenResourceError, match="too many messages of TLS itself") as raised:
        shake(one, other)
    assert isinstance(raised.value.__cause__, ssl.SSLError)
    assert one.shaken
    # what it has sent after that is not looked at
    assert one.holds_bytes
    with pytest.raises(trio.BrokenResourceError, match="too many messages"):
        one.read(9)


def test_many_messages_of_tls_between_data_are_accepted() -> None:
    one, other = cores(server=with_tickets(100))
    shake(one, other)
    for sent in (b"first", bytes(5 * PIECE), *[b"x"] * 5000):
        assert deliver(one, encrypt(other, sent), cycle([1 << 20]), cycle([1 << 20])) == sent


def test_a_handshake_without_end_is_refused() -> None:
    """A client ignores a HelloRequest in its handshake."""
    one, _ = cores(client=only_tls_12())
    one.shake()
    one.feed(b"\x16\x03\x03\x00\x04" + bytes(4))
    assert not one.shake()
    one.feed((b"\x16\x03\x03\x00\x04" + bytes(4)) * 100_000)
    with pytest.raises(trio.BrokenResourceError, match="too many messages of TLS itself"):
        one.shake()


def test_a_long_chain_of_certificates_is_accepted(tmp_path: Path) -> None:
    """OpenSSL accepts 100 KiB."""
    (tmp_path / "chain.pem").write_bytes(certificates().pem + 200 * certificates().issuer_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "chain.pem")
    one, other = cores(server=server)
    shake(one, other)
    assert deliver(one, encrypt(other, b"hello"), cycle([1 << 20]), cycle([9])) == b"hello"


def test_the_context_refuses_renegotiation() -> None:
    cores()
    assert certificates().server.options & ssl.OP_NO_RENEGOTIATION
    assert certificates().client.options & ssl.OP_NO_RENEGOTIATION


def test_an_error_that_openssl_does_not_name_keeps_its_text() -> None:
    assert describe_error(ssl.SSLError("something")) == "something"
    assert describe_error(ValueError("else")) == "else"
