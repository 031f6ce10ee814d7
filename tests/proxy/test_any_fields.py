"""Whatever fields a client sends: what goes on to an upstream is one head, and nobody is believed who must not be."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.http import BadRequest, Limits, Request
from deadlined.http.wire.parsers import head_parser
from deadlined.http.wire.request import RequestParser
from deadlined.proxy.fields import passed_upgrade
from deadlined.proxy.forwarded import Peer
from tests.support.examples import examples
from tests.support.proxy_fields import BEHIND, HOP_BY_HOP, STRANGER, TRUSTED, UPSTREAM, claims, request_fields, sent
from tests.support.requests import get, one

_NAMES = st.one_of(
    st.sampled_from(
        [
            *("X-Forwarded-For", "x_forwarded_for", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port", "Via"),
            *(
                "Forwarded",
                "FORWARDED",
                "X-Real-IP",
                "X-Forwarded-Ssl",
                "Client-Cert",
                "Connection",
                "Keep-Alive",
                "TE",
                "Trailer",
            ),
            *("Proxy-Connection", "Proxy-Authorization", "Proxy", "Upgrade", "HTTP2-Settings", "Cookie", "X-Thing"),
        ]
    ),
    st.text("abxX-_.!~", min_size=1, max_size=8),
)
_TEXT = st.one_of(
    st.sampled_from(
        [
            *(
                "6.6.6.6",
                "for=6.6.6.6",
                'for="',
                "https",
                "close",
                "keep-alive, X-Forwarded-For",
                "Host, Via",
                "upgrade",
            ),
            *("forwarded,cookie", "websocket", "h2c", "chunked", "x-forwarded-for ,\tx-forwarded-proto"),
        ]
    ),
    st.text(st.characters(max_codepoint=255), max_size=20),
)
_LINES = st.lists(st.tuples(_NAMES, _TEXT).map(": ".join), max_size=8)


def asked(lines: list[str]) -> Request | None:
    """The request that a client sends with these lines, None if the server refuses it."""
    parser = RequestParser(Limits(), head_parser("httptools"))
    try:
        parser.feed(get(*(line.encode("latin-1") for line in lines), host=b"Host: shop.example"))
        return parser.next_request()
    except BadRequest:
        return None


@settings(max_examples=examples(500))
@given(_LINES)
def test_no_stranger_has_any_influence_on_what_upstreams_are_told_of_it(lines: list[str]) -> None:
    request = asked(lines)
    if request is not None:
        fields = request_fields(request, STRANGER, b"u")
        assert claims(fields) == claims(sent(host=b"Host: shop.example"))
        same = [name.replace(b"_", b"-").replace(b".", b"-") for name, _ in fields]
        assert len([name for name in same if name.startswith(b"x-forwarded")]) == 4
        assert same.count(b"forwarded") == same.count(b"host") == same.count(b"via") == 1
        assert {b"x-real-ip", b"client-cert"}.isdisjoint(same)


@settings(max_examples=examples(500))
@given(_LINES, st.sampled_from([STRANGER, TRUSTED]))
def test_no_field_for_one_connection_goes_on(lines: list[str], peer: Peer) -> None:
    request = asked(lines)
    if request is not None:
        names = {name for name, _ in request_fields(request, peer, b"u")}
        assert names.isdisjoint(HOP_BY_HOP)
        assert not any(name.startswith(b"proxy-") for name in names)
        assert b"h2c" not in passed_upgrade(request).lower()


@settings(max_examples=examples(500))
@given(_LINES, st.sampled_from([STRANGER, TRUSTED]), st.booleans())
def test_what_is_sent_is_one_head_as_any_reader_reads_it(lines: list[str], peer: Peer, upgraded: bool) -> None:
    request = asked(lines)
    if request is not None:
        fields = request_fields(request, peer, b"u", passed_upgrade(request) if upgraded else b"")
        written = b"GET / HTTP/1.1\r\n" + b"".join(b"%s: %s\r\n" % field for field in fields) + b"\r\n"
        assert one(written).headers == fields


@settings(max_examples=examples(500))
@given(_LINES)
def test_no_lie_behind_a_trusted_proxy_hides_what_that_proxy_has_appended(lines: list[str]) -> None:
    appended = ["X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1"]
    request = asked([*lines, *appended])
    if request is not None:
        fields = request_fields(request, TRUSTED, b"u")
        for name in (b"forwarded", b"x-forwarded-for"):
            alone = [field for field in fields if field[0] == name]
            origin = BEHIND.origin(alone, *UPSTREAM)
            assert origin is not None
            assert origin.client == ("192.0.2.1", 0)
