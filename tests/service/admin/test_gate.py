"""Who may ask the admin listener."""

from __future__ import annotations

import base64

import pytest

from deadlined.service.admin.gate import PROBES, Gate, host_name

TOKEN = b"s3cret"
LOCAL = Gate(None, frozenset(("localhost", "127.0.0.1", "admin.internal")))
GUARDED = Gate(TOKEN, frozenset(("localhost", "0.0.0.0")))
UNIX = Gate(None, None)


def basic(user: bytes, password: bytes) -> bytes:
    return b"Basic " + base64.b64encode(user + b":" + password)


def status(gate: Gate, path: str = "/metrics", **headers: bytes) -> int:
    refusal = gate.check(path, [(name.replace("_", "-").encode(), value) for name, value in headers.items()])
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host",
    [
        b"127.0.0.1:9000",
        b"127.0.0.1",
        b"10.1.2.3:80",
        b"[::1]:9000",
        b"[::1]",
        b"localhost:9000",
        b"LOCALHOST",
        b"",
        b"admin.internal:9000",
        b"localhost.:9000",
    ],
)
def test_without_a_token_the_host_is_an_address_or_a_name_of_the_listener(host: bytes) -> None:
    assert status(LOCAL, host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example",
        b"evil.example:9000",
        b"127.0.0.1.evil.example",
        b"localhost.evil.example",
        b"[evil.example]:1",
        b"127.0.0.1@evil.example",
        b"\xff",
        b"127.0.0.256",
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/drain", *sorted(PROBES)])
def test_a_name_that_was_made_to_resolve_to_the_loopback_address_is_refused(host: bytes, path: str) -> None:
    assert status(LOCAL, path, host=host) == 421


def test_a_request_of_http_1_0_needs_no_host() -> None:
    assert status(LOCAL) == 200


def test_on_a_unix_socket_the_host_does_not_matter() -> None:
    assert status(UNIX, host=b"anything") == 200


@pytest.mark.parametrize("gate", [LOCAL, UNIX], ids=["loopback", "unix"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": b"https://evil.example"},
        {"origin": b"null"},
        {"origin": b"http://127.0.0.1:8000"},
        {"sec_fetch_site": b"cross-site"},
        {"sec_fetch_site": b"same-site"},
    ],
    ids=str,
)
def test_what_a_browser_sends_for_another_site_is_refused(gate: Gate, headers: dict[str, bytes]) -> None:
    assert status(gate, "/drain", host=b"127.0.0.1:9000", **headers) == 403


@pytest.mark.parametrize(
    "headers",
    [{"origin": b"http://127.0.0.1:9000"}, {"sec_fetch_site": b"same-origin"}, {"sec_fetch_site": b"none"}],
    ids=str,
)
def test_the_listeners_own_page_may_ask(headers: dict[str, bytes]) -> None:
    assert status(LOCAL, "/drain", host=b"127.0.0.1:9000", **headers) == 200


@pytest.mark.parametrize(
    "given",
    [b"Bearer s3cret", b"bearer s3cret", b"Bearer  s3cret ", basic(b"", TOKEN), basic(b"anyone", TOKEN)],
)
def test_the_token_opens_the_gate_whatever_the_host(given: bytes) -> None:
    assert status(GUARDED, host=b"admin.example", authorization=given) == 200


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"s3cret",
        b"Bearer",
        b"Bearer ",
        b"Bearer s3cre",
        b"Bearer s3cret2",
        b"Bearer S3CRET",
        b"Digest s3cret",
        basic(TOKEN, b""),
        basic(b"", b""),
        b"Basic !!!",
        b"Basic \xff",
        "Bearer s3crét".encode(),
    ],
)
def test_anything_else_does_not(given: bytes) -> None:
    assert status(GUARDED, authorization=given) == 401


def test_no_token_or_two_tokens_are_refused() -> None:
    field = (b"authorization", b"Bearer s3cret")
    assert status(GUARDED) == 401
    refusal = GUARDED.check("/metrics", [field, field])
    assert refusal is not None
    assert refusal.status == 401


def test_a_refusal_does_not_tell_the_token() -> None:
    refusal = GUARDED.check("/metrics", [])
    assert refusal is not None
    assert TOKEN.decode() not in refusal.sentence


@pytest.mark.parametrize("path", sorted(PROBES))
def test_the_probes_need_no_token_but_no_other_site_may_ask_them(path: str) -> None:
    assert status(GUARDED, path, host=b"10.0.0.1") == 200
    assert status(GUARDED, path, host=b"10.0.0.1", origin=b"https://evil.example") == 403


@pytest.mark.parametrize(
    ("field", "name"),
    [("a:1", "a"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("A.B.", "a.b"), ("", ""), (":80", ""), ("[", "")],
)
def test_the_name_of_a_host_field(field: str, name: str) -> None:
    assert host_name(field) == name
