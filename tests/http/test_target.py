"""The target of a request: four forms, each read by its grammar, and one host to see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlined.http import BadRequest
from deadlined.http.wire.head import build_request
from deadlined.http.wire.target import is_authority, parse_target

HOSTS = [
    b"x",
    b"Example.ORG",
    b"a.b.",
    b"x:80",
    b"x:",
    b"x:0",
    b"x:65535",
    b"127.0.0.1",
    b"127.0.0.1:8000",
    b"[::1]",
    b"[::1]:8000",
    b"[2001:DB8::7]:",
    b"[::ffff:1.2.3.4]",
    b"[v7.a:b]",
    b"[vF.~]:1",
    b"my_service",
    b"a%20b",
    b"%e4.example",
    b"a-b~!$&'()*+,;=",
]

NOT_HOSTS = [
    b"",
    b":",
    b":80",
    b"a:80:80",
    b"a:b",
    b"a:+80",
    b"a:-1",
    b"a:65536",
    b"a:000080",
    b"a: 80",
    b"%",
    b"%zz",
    b"a%2",
    b"[::1",
    b"::1]",
    b"::1",
    b"[]",
    b"[:::1]",
    b"[1]",
    b"[1.2.3.4]",
    b"[::1%25eth0]",
    b"[::1%eth0]",
    b"[::1]x",
    b"[::1]80",
    b"[::g]",
    b"[v.a]",
    b"[v7.]",
    b"[v7.a/b]",
    b"[[::1]]",
    b"me@x",
    b"me:pw@x",
    b"a/b",
    b"a?b",
    b"a#b",
    b"a b",
    b"a\tb",
    b'"a"',
    b"a\\b",
    b"<a>",
    b"a\n",
    b"\xe4",
    "ä".encode(),
]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_with_or_without_a_port_is_an_authority(host: bytes) -> None:
    assert is_authority(host)
    assert build_request("GET", b"/", "1.1", [(b"host", host)]).headers == [(b"host", host)]


@pytest.mark.parametrize("host", NOT_HOSTS)
def test_anything_else_is_no_authority(host: bytes) -> None:
    assert not is_authority(host)


@pytest.mark.parametrize("host", [host for host in NOT_HOSTS if host])
def test_a_host_field_that_is_no_authority_is_refused(host: bytes) -> None:
    with pytest.raises(BadRequest, match="the Host header is not a host"):
        build_request("GET", b"/", "1.1", [(b"host", host)])


def test_an_empty_host_field_is_that_of_a_target_without_a_host() -> None:
    assert build_request("GET", b"/", "1.1", [(b"host", b"")]).path_and_query == b"/"


@given(st.binary(max_size=12))
def test_any_bytes_are_an_authority_or_not(value: bytes) -> None:
    assert is_authority(value) in (True, False)


READ: list[tuple[str, bytes, bytes, bytes | None]] = [
    ("OPTIONS", b"*", b"*", None),
    ("GET", b"http://x", b"/", b"x"),
    ("GET", b"http://x/", b"/", b"x"),
    ("GET", b"HTTP://x/a", b"/a", b"x"),
    ("GET", b"https://x:8443/a?b=http://y/c", b"/a?b=http://y/c", b"x:8443"),
    ("GET", b"http://x?next=/a", b"/?next=/a", b"x"),
    ("GET", b"http://x/?", b"/?", b"x"),
    ("GET", b"http://[::1]:80//a/../b", b"//a/../b", b"[::1]:80"),
    ("OPTIONS", b"http://x", b"*", b"x"),
    ("OPTIONS", b"http://x/", b"/", b"x"),
    ("OPTIONS", b"http://x?a", b"/?a", b"x"),
]


@pytest.mark.parametrize(("method", "target", "path_and_query", "authority"), READ)
def test_a_target_that_is_no_path_is_parsed(
    method: str, target: bytes, path_and_query: bytes, authority: bytes | None
) -> None:
    assert parse_target(method, target) == (path_and_query, authority)


REFUSED = [
    ("GET", b"*"),
    ("OPTIONS", b"**"),
    ("OPTIONS", b"*/"),
    ("GET", b"a"),
    ("GET", b"a/b"),
    ("GET", b"?a"),
    ("GET", b"a?b=http://x/scope"),
    ("GET", b"a/b://x/"),
    ("GET", b"*://x/"),
    ("GET", b"://x/"),
    ("GET", b"ftp://x/"),
    ("GET", b"httpx://x/"),
    ("GET", b"xhttp://x/"),
    ("GET", b"http:/x"),
    ("GET", b"http:x"),
    ("GET", b"http//x/"),
    ("GET", b"http:"),
    ("GET", b"http://"),
    ("GET", b"http:///"),
    ("GET", b"http:///a"),
    ("GET", b"http://?a"),
    ("GET", b"http://:80/"),
    ("GET", b"http://me@x/"),
    ("GET", b"http://me:pw@x/"),
    ("GET", b"http://@x/"),
    ("GET", b"http://x:a/"),
    ("GET", b"http://x:80:80/"),
    ("GET", b"http://x:65536/"),
    ("GET", b"http://[::1/"),
    ("GET", b"http://%zz/"),
    ("GET", b"http://x/a#b"),
    ("GET", b"http://x\\y/"),
    ("GET", b"x:80"),
    ("GET", b"example.org:443"),
    ("GET", b"/a#b"),
    ("GET", b"#"),
    ("GET", b"\\a"),
]


@pytest.mark.parametrize(("method", "target"), REFUSED)
def test_a_target_of_no_form_is_refused(method: str, target: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        build_request(method, target, "1.1", [(b"host", b"x")])
    assert caught.value.status == 400


@pytest.mark.parametrize("target", [b"/", b"//x/y", b"/a?b=http://x/scope", b"/a://x/", b"/*", b"/%00", b"/?"])
def test_a_path_is_served_as_it_is(target: bytes) -> None:
    request = build_request("GET", target, "1.1", [(b"host", b"x")])
    assert request.path_and_query is request.target is target


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_the_host_of_a_url_replaces_that_of_the_host_field(version: str) -> None:
    headers = [(b"a", b"b"), (b"host", b"elsewhere"), (b"c", b"d")]
    request = build_request("GET", b"http://x:81/a", version, headers)
    assert request.headers == [(b"host", b"x:81"), (b"a", b"b"), (b"c", b"d")]
    assert (request.target, request.path_and_query) == (b"http://x:81/a", b"/a")


def test_the_host_of_a_url_is_the_host_field_of_a_request_that_needs_none() -> None:
    assert build_request("GET", b"http://x/", "1.0", []).headers == [(b"host", b"x")]


def test_a_url_does_not_make_up_for_a_host_field_that_is_missing_or_malformed() -> None:
    for headers in ([], [(b"host", b"a b")], [(b"host", b"x"), (b"host", b"x")]):
        with pytest.raises(BadRequest):
            build_request("GET", b"http://x/", "1.1", headers)


@pytest.mark.parametrize("target", [b"x:443", b"x", b"/", b"*", b"http://x/"])
def test_connect_is_not_implemented_for_any_target(target: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        build_request("CONNECT", target, "1.1", [(b"host", b"x")])
    assert caught.value.status == 501
