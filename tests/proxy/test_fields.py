"""Which fields go on to an upstream, which come back, and what a hostile client can do about it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.http import Limits, Request
from deadlined.http.forwarded import Address
from deadlined.http.trusted import WRITTEN, Origin, TrustedProxies
from deadlined.http.wire.parsers import head_parser
from deadlined.http.wire.request import RequestParser
from deadlined.proxy.fields import passed_upgrade, required_upgrade, response_fields
from deadlined.proxy.forwarded import Peer, peer_of
from tests.support.examples import examples
from tests.support.proxy_fields import (
    BEHIND,
    CLIENT,
    FRONT,
    HERE,
    HOP_BY_HOP,
    PROXIES,
    STRANGER,
    TRUSTED,
    UPSTREAM,
    Fields,
    claims,
    request_fields,
    sent,
)
from tests.support.requests import get, one


def of_client(*fields: bytes) -> Fields:
    """What is sent of what a stranger has written himself."""
    own = {b"host", b"via"} | {name for name, _ in sent()}
    return [field for field in sent(*fields) if field[0] not in own]


def value(fields: Fields, name: bytes) -> bytes | None:
    """The value of a field that is there once at most."""
    values = [value for key, value in fields if key == name]
    assert len(values) <= 1
    return values[0] if values else None


# a plain request


def test_a_request_goes_on_with_its_fields_in_their_order_and_with_those_of_the_proxy() -> None:
    assert sent(b"Accept: */*", b"Cookie: b=1", b"X-Thing: 1", b"X-Thing: 2", host=b"Host: shop.example:81") == [
        (b"host", b"shop.example:81"),
        (b"accept", b"*/*"),
        (b"cookie", b"b=1"),
        (b"x-thing", b"1"),
        (b"x-thing", b"2"),
        (b"x-forwarded-for", b"192.0.2.1"),
        (b"x-forwarded-proto", b"http"),
        (b"x-forwarded-host", b"shop.example:81"),
        (b"x-forwarded-port", b"81"),
        (b"forwarded", b'for="192.0.2.1:4711";proto=http;host="shop.example:81"'),
        (b"via", b"1.1 deadlined"),
    ]


def test_host_is_first_wherever_it_came() -> None:
    head = b"GET / HTTP/1.1\r\naccept: */*\r\nhost: a\r\n\r\n"
    assert request_fields(one(head), STRANGER, b"u")[0] == (b"host", b"a")


def test_the_host_of_a_url_is_the_one_that_is_sent() -> None:
    fields = sent(line=b"GET http://shop.example/ HTTP/1.1")
    assert value(fields, b"host") == value(fields, b"x-forwarded-host") == b"shop.example"


def test_a_request_without_a_host_gets_the_upstreams_and_says_nothing_of_it() -> None:
    fields = request_fields(one(b"GET / HTTP/1.0\r\n\r\n"), STRANGER, b"upstream:8080")
    assert fields[0] == (b"host", b"upstream:8080")
    assert claims(fields) == {
        "x-forwarded-for": "192.0.2.1",
        "x-forwarded-proto": "http",
        "forwarded": 'for="192.0.2.1:4711";proto=http',
    }


def test_an_empty_host_stays_empty() -> None:
    fields = sent(host=b"Host:")
    assert fields[0] == (b"host", b"")
    assert value(fields, b"x-forwarded-host") is None


def test_the_proxy_adds_itself_to_via_with_the_version_that_it_has_received() -> None:
    assert value(sent(b"Via: 1.1 a", b"Via: 2 b"), b"via") == b"1.1 a, 2 b, 1.1 deadlined"
    assert value(sent(line=b"GET / HTTP/1.0"), b"via") == b"1.0 deadlined"


# for one connection only


@pytest.mark.parametrize(
    "field",
    [
        *(b"Connection: keep-alive", b"Connection: close", b"Keep-Alive: timeout=5", b"Proxy-Connection: keep-alive"),
        *(b"Proxy-Authorization: Basic YQ==", b"Proxy-Authenticate: Basic", b"TE: trailers", b"Trailer: x-a"),
        *(b"Upgrade: websocket", b"HTTP2-Settings: AAMAAABk", b"Expect: 100-continue", b"Content-Length: 0"),
        *(b"Proxy: http://evil.example", b"Transfer_Encoding: chunked", b"Content_Length: 5", b"Proxy_X: 1"),
    ],
)
def test_a_field_for_this_connection_ends_here(field: bytes) -> None:
    assert sent(field) == sent()


def test_what_connection_names_ends_here() -> None:
    assert (
        of_client(b"Connection: X-One, ,x-two\t", b"connection: X-Three", b"X-One: 1", b"x-two: 2", b"X-Two: 2") == []
    )
    assert of_client(b"X-Three: 3", b"X-Four: 4", b"Connection: x-three") == [(b"x-four", b"4")]


@pytest.mark.parametrize(
    "field",
    [
        *(b"Authorization: Basic YQ==", b"Cookie: a=1", b"Origin: https://a.example", b"Content-Type: text/plain"),
        *(b"Content-Encoding: gzip", b"Cache-Control: no-store"),
    ],
)
def test_what_says_who_asks_and_how_the_body_is_read_cannot_be_taken_away(field: bytes) -> None:
    assert sent(field, b"Connection: close, " + field.partition(b":")[0]) == sent(field)


@pytest.mark.parametrize("name", [b"Host", b"Via", b"Forwarded", b"X-Forwarded-For", b"X-Forwarded-Proto"])
@pytest.mark.parametrize("peer", [STRANGER, TRUSTED])
def test_what_the_proxy_writes_cannot_be_taken_away(name: bytes, peer: Peer) -> None:
    known = (b"X-Forwarded-For: 192.0.2.7", b"X-Forwarded-Proto: https", b"Forwarded: for=192.0.2.7", b"Via: 1.1 a")
    assert sent(*known, b"Connection: close, " + name, peer=peer) == sent(*known, peer=peer)


# framing


def framing(fields: Fields) -> Fields:
    return [field for field in fields if field[0] in (b"content-length", b"transfer-encoding")]


@pytest.mark.parametrize(
    ("line", "fields", "framed"),
    [
        (b"POST / HTTP/1.1", [b"Content-Length: 0012"], [(b"content-length", b"12")]),
        (b"POST / HTTP/1.0", [b"Content-Length: 12"], [(b"content-length", b"12")]),
        (b"GET / HTTP/1.1", [b"Content-Length: 12"], [(b"content-length", b"12")]),
        (b"POST / HTTP/1.1", [b"Transfer-Encoding: Chunked"], [(b"transfer-encoding", b"chunked")]),
        (b"PUT / HTTP/1.1", [b"Content-Length: 0"], [(b"content-length", b"0")]),
        (b"PATCH / HTTP/1.1", [b"Content-Length: 0"], [(b"content-length", b"0")]),
        (b"GET / HTTP/1.1", [b"Content-Length: 0"], []),
        (b"DELETE / HTTP/1.1", [b"Content-Length: 0"], []),
        (b"POST / HTTP/1.1", [], []),
        # who names them in Connection
        (b"POST / HTTP/1.1", [b"Content-Length: 3", b"Connection: Content-Length"], [(b"content-length", b"3")]),
        (
            b"POST / HTTP/1.1",
            [b"Transfer-Encoding: chunked", b"Connection: Transfer-Encoding"],
            [(b"transfer-encoding", b"chunked")],
        ),
        # what a CGI program would read as one
        (b"POST / HTTP/1.1", [b"Content_Length: 9", b"Content-Length: 3"], [(b"content-length", b"3")]),
    ],
)
def test_a_body_is_framed_once_and_as_it_came(line: bytes, fields: list[bytes], framed: Fields) -> None:
    # only the head is read, so no body is needed
    assert framing(request_fields(head(*fields, line=line), STRANGER, b"u")) == framed


def head(*fields: bytes, line: bytes = b"GET / HTTP/1.1") -> Request:
    request = RequestParser(Limits(), head_parser("httptools"))
    request.feed(get(*fields, line=line))
    found = request.next_request()
    assert found is not None
    return found


# of where the request comes from: a client that nobody trusts


@pytest.mark.parametrize(
    "field",
    [
        *(b"X-Forwarded-For: 6.6.6.6", b"X-Forwarded-Proto: https", b"X-Forwarded-Host: evil", b"X-Forwarded-Port: 1"),
        *(b"X-Forwarded-Prefix: /evil", b"X-Forwarded-Server: evil", b"X-Forwarded-Ssl: on", b"X-Forwarded-Any: 1"),
        *(b"X-Real-IP: 6.6.6.6", b"Forwarded: for=6.6.6.6;proto=https", b"X-Forwarded: 6.6.6.6"),
        *(b"Client-Cert: :AAAA:", b"Client_Cert: :AAAA:", b"Client-Cert-Chain: :AAAA:, :BBBB:"),
        *(b"X_Forwarded_For: 6.6.6.6", b"x-forwarded_proto: https", b"X_Real_IP: 6.6.6.6", b"X.Forwarded.For: 6.6.6.6"),
    ],
)
def test_what_a_stranger_says_of_where_it_comes_from_is_dropped(field: bytes) -> None:
    assert sent(field) == sent(field, field) == sent(field, b"Connection: " + field.partition(b":")[0]) == sent()


def test_other_names_with_an_underscore_are_passed_on() -> None:
    assert of_client(b"X_Thing: 1", b"Forwarded-By: me") == [(b"x_thing", b"1"), (b"forwarded-by", b"me")]


@pytest.mark.parametrize(
    ("client", "scheme", "server", "address", "element"),
    [
        (("192.0.2.1", 80), "https", HERE, b"192.0.2.1", b'for="192.0.2.1:80";proto=https'),
        (("192.0.2.1", 0), "http", HERE, b"192.0.2.1", b"for=192.0.2.1;proto=http"),
        (("2001:db8::1", 80), "http", HERE, b"2001:db8::1", b'for="[2001:db8::1]:80";proto=http'),
        (("2001:db8::1", 0), "http", HERE, b"2001:db8::1", b'for="[2001:db8::1]";proto=http'),
        (("fe80::1%eth0", 80), "http", HERE, b"fe80::1", b'for="[fe80::1]:80";proto=http'),
        (("::ffff:192.0.2.1", 80), "http", HERE, b"192.0.2.1", b'for="192.0.2.1:80";proto=http'),
        (None, "http", ("/run/a.sock", None), b"unknown", b"for=unknown;proto=http"),
        (None, "http", HERE, b"unknown", b"for=unknown;proto=http"),
        (("no-address", 80), "http", HERE, b"unknown", b"for=unknown;proto=http"),
    ],
)
def test_the_fields_name_the_client_and_its_scheme(
    client: Address | None, scheme: str, server: tuple[str, int | None], address: bytes, element: bytes
) -> None:
    fields = sent(peer=peer_of(client, scheme, server), host=b"Host: a")
    assert value(fields, b"x-forwarded-for") == address
    assert value(fields, b"x-forwarded-proto") == scheme.encode()
    assert value(fields, b"forwarded") == element + b";host=a"


@pytest.mark.parametrize(
    ("scheme", "host", "port", "quoted"),
    [
        ("http", b"shop.example", b"80", b"shop.example"),
        ("https", b"shop.example", b"443", b"shop.example"),
        ("https", b"shop.example:8443", b"8443", b'"shop.example:8443"'),
        ("http", b"shop.example:", b"80", b'"shop.example:"'),
        ("http", b"[2001:db8::1]", b"80", b'"[2001:db8::1]"'),
        ("http", b"[2001:db8::1]:81", b"81", b'"[2001:db8::1]:81"'),
        ("http", b"1234", b"80", b"1234"),
        ("http", b"a;for=6.6.6.6,b", b"80", b'"a;for=6.6.6.6,b"'),
    ],
)
def test_the_fields_name_the_host_and_the_port_that_were_asked_for(
    scheme: str, host: bytes, port: bytes, quoted: bytes
) -> None:
    fields = sent(peer=peer_of(CLIENT, scheme, HERE), host=b"Host: " + host)
    assert value(fields, b"x-forwarded-host") == host
    assert value(fields, b"x-forwarded-port") == port
    assert (value(fields, b"forwarded") or b"").endswith(b";host=" + quoted)


# a proxy that is trusted


def continued(*fields: bytes, peer: Peer = TRUSTED) -> dict[str, str]:
    return claims(sent(*fields, peer=peer, host=b"Host: shop.example"))


ELEMENT = 'for="10.0.0.1:1234";proto=http;host=shop.example'


def test_a_trusted_proxy_that_says_nothing_is_named_as_a_client_is() -> None:
    assert continued() == {
        "x-forwarded-for": "10.0.0.1",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "shop.example",
        "x-forwarded-port": "80",
        "forwarded": ELEMENT,
    }


def test_what_it_does_not_write_is_left_out() -> None:
    fields = [b"X-Forwarded-For: 6.6.6.6", b"X-Real-IP: 6.6.6.6", b"Forwarded: for=192.0.2.1"]
    peer = peer_of(("10.0.0.1", 1234), "http", None, TrustedProxies(["10.0.0.1"], "forwarded"))
    assert continued(*fields, peer=peer) == {"forwarded": f"for=192.0.2.1, {ELEMENT}"}
    peer = peer_of(("10.0.0.1", 1234), "http", None, TrustedProxies(["10.0.0.1"], "x-forwarded"))
    assert continued(*fields, peer=peer) == {
        "x-forwarded-for": "6.6.6.6, 10.0.0.1",
        "x-real-ip": "6.6.6.6",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "shop.example",
        "x-forwarded-port": "80",
    }
    # as if it had said nothing
    assert continued(fields[-1], peer=peer) == continued()


def test_it_is_added_to_both_lists_and_what_it_says_of_the_rest_is_kept() -> None:
    assert continued(
        *(b"X-Forwarded-For: 6.6.6.6", b"X-Forwarded-Proto: https", b"X-Forwarded-For: 192.0.2.1, 10.0.0.9"),
        *(b"Forwarded: for=6.6.6.6", b"Forwarded: for=192.0.2.1;by=_x", b"X-Real-IP: 192.0.2.1"),
        *(b"X-Forwarded-Host: www.example", b"X-Forwarded-Port: 8443", b"X-Forwarded-Prefix: /shop"),
    ) == {
        "x-forwarded-for": "6.6.6.6, 192.0.2.1, 10.0.0.9, 10.0.0.1",
        "x-forwarded-proto": "https",
        "forwarded": f"for=6.6.6.6, for=192.0.2.1;by=_x, {ELEMENT}",
        "x-real-ip": "192.0.2.1",
        "x-forwarded-host": "www.example",
        "x-forwarded-port": "8443",
        "x-forwarded-prefix": "/shop",
    }


def test_a_list_that_it_does_not_write_is_not_begun_because_it_would_name_the_proxy_as_the_client() -> None:
    assert continued(b"Forwarded: for=192.0.2.1;proto=https") == {
        "forwarded": f"for=192.0.2.1;proto=https, {ELEMENT}",
    }
    assert continued(b"X-Forwarded-For: 192.0.2.1", b"X-Forwarded-Proto: https") == {
        "x-forwarded-for": "192.0.2.1, 10.0.0.1",
        "x-forwarded-proto": "https",
    }


def test_where_it_says_only_who_asked_the_proxy_says_what_for() -> None:
    assert continued(b"X-Forwarded-For: 192.0.2.1") == {
        "x-forwarded-for": "192.0.2.1, 10.0.0.1",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "shop.example",
        "x-forwarded-port": "80",
    }


@pytest.mark.parametrize("name", [b"X_Forwarded_For", b"X-Forwarded_Proto", b"X_Real_IP"])
def test_an_underscore_is_its_clients_even_so(name: bytes) -> None:
    assert continued(name + b": 6.6.6.6") == continued()


@pytest.mark.parametrize("lie", [b'for=6.6.6.6;x="', b"for=6.6.6.6 for=7.7.7.7", b"for=6.6.6.6;for=7.7.7.7"])
def test_a_forwarded_that_would_swallow_what_is_appended_is_dropped_with_all_before_it(lie: bytes) -> None:
    assert continued(b"Forwarded: " + lie) == {"forwarded": ELEMENT}
    assert continued(b"Forwarded: for=6.6.6.6", b"Forwarded: " + lie, b"Forwarded: for=192.0.2.1") == {
        "forwarded": f"for=192.0.2.1, {ELEMENT}"
    }


def test_empty_fields_are_no_elements() -> None:
    assert continued(b"X-Forwarded-For:", b"Forwarded:") == {
        "x-forwarded-for": "10.0.0.1",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "shop.example",
        "x-forwarded-port": "80",
        "forwarded": ELEMENT,
    }


def test_a_trusted_proxy_on_a_unix_socket_leaves_no_gap_in_the_lists() -> None:
    peer = peer_of(None, "http", ("/run/a.sock", None), TrustedProxies(["unix"]))
    fields = (b"X-Forwarded-For: 192.0.2.1", b"X-Forwarded-Proto: https", b"Forwarded: for=192.0.2.1")
    assert continued(*fields, peer=peer) == {
        "x-forwarded-for": "192.0.2.1",
        "x-forwarded-proto": "https",
        "forwarded": "for=192.0.2.1",
    }
    assert continued(peer=peer)["x-forwarded-for"] == "unknown"


@pytest.mark.parametrize(
    ("client", "server", "proxies", "trusted"),
    [
        (FRONT, HERE, ["10.0.0.0/8"], True),
        (CLIENT, HERE, ["10.0.0.0/8"], False),
        (None, ("/run/a.sock", None), ["unix"], True),
        (None, ("/run/a.sock", None), ["10.0.0.0/8"], False),
        # over TCP, and gone already
        (None, HERE, ["unix"], False),
    ],
)
def test_who_is_trusted(
    client: Address | None, server: tuple[str, int | None], proxies: list[str], trusted: bool
) -> None:
    assert (peer_of(client, "http", server, TrustedProxies(proxies)).proxies is not None) is trusted
    assert peer_of(client, "http", server).proxies is None


# the certificate of a client (RFC 9440)


SAID = [b"Client-Cert: :AAAA:", b"Client-Cert-Chain: :AAAA:, :CCCC:", b"Connection: client-cert"]


def test_an_upstream_is_told_of_the_certificate_of_a_client_and_of_nothing_that_it_says_of_it() -> None:
    fields = request_fields(one(get(*SAID)), STRANGER, b"u", certificate=b":BBBB:")
    assert value(fields, b"client-cert") == b":BBBB:"
    assert value(fields, b"client-cert-chain") is None


@pytest.mark.parametrize("written", WRITTEN)
def test_a_trusted_proxy_is_not_its_client_and_may_pass_on_what_that_says(written: str) -> None:
    peer = peer_of(FRONT, "http", HERE, TrustedProxies(["10.0.0.1"], written))
    fields = request_fields(one(get(*SAID)), peer, b"u", certificate=b":BBBB:")
    assert value(fields, b"client-cert") is value(fields, b"client-cert-chain") is None


# as a server of this project reads it behind the proxy


def found(*fields: bytes, peer: Peer) -> Origin | None:
    return BEHIND.origin(sent(*fields, peer=peer, host=b"Host: shop.example"), *UPSTREAM)


def test_an_upstream_that_trusts_the_proxy_finds_the_client() -> None:
    peer = peer_of(CLIENT, "https", HERE, PROXIES)
    assert found(b"X-Forwarded-For: 6.6.6.6", peer=peer) == (CLIENT, "https", ("shop.example", 443))


@pytest.mark.parametrize(
    "fields",
    [
        [b"X-Forwarded-For: 6.6.6.6, 192.0.2.1", b"X-Forwarded-Proto: https"],
        [b"Forwarded: for=6.6.6.6, for=192.0.2.1;proto=https"],
        [b"Forwarded: for=192.0.2.1;proto=https", b"X-Forwarded-For: 192.0.2.1", b"X-Forwarded-Proto: https"],
    ],
)
def test_it_finds_the_client_behind_a_trusted_proxy_whatever_fields_that_one_writes(fields: list[bytes]) -> None:
    origin = found(*fields, peer=TRUSTED)
    assert origin is not None
    assert (origin.client, origin.scheme) == (("192.0.2.1", 0), "https")


# upgrades


WEBSOCKET = (b"Connection: Upgrade", b"Upgrade: websocket")


@pytest.mark.parametrize("protocol", [b"websocket", b"WebSocket", b"example/1.0"])
def test_one_protocol_is_passed_on_if_the_caller_says_so(protocol: bytes) -> None:
    request = one(get(b"Connection: keep-alive, Upgrade", b"Upgrade: " + protocol, b"Sec-WebSocket-Key: x"))
    assert passed_upgrade(request) == protocol
    fields = request_fields(request, STRANGER, b"u", passed_upgrade(request))
    assert fields[-2:] == [(b"connection", b"Upgrade"), (b"upgrade", protocol)]
    assert (b"sec-websocket-key", b"x") in fields
    assert {b"connection", b"upgrade"}.isdisjoint(dict(request_fields(request, STRANGER, b"u")))


@pytest.mark.parametrize(
    "protocol",
    [
        *(b"h2c", b"H2C", b"h2", b"h2c/1", b"TLS/1.0", b"tls", b"HTTP/2.0"),
        *(
            b"websocket, h2c",
            b"websocket,",
            b"web socket",
            b"websocket/",
            b"/13",
            b"websocket/1/2",
            b'"websocket"',
            b"",
        ),
    ],
)
def test_what_would_carry_requests_past_the_proxy_is_not_passed_on(protocol: bytes) -> None:
    assert passed_upgrade(one(get(b"Connection: Upgrade", b"Upgrade: " + protocol))) == b""


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (b"POST / HTTP/1.1", WEBSOCKET),
        (b"GET / HTTP/1.0", WEBSOCKET),
        (b"GET / HTTP/1.1", (*WEBSOCKET, b"Content-Length: 5")),
        (b"GET / HTTP/1.1", (*WEBSOCKET, b"Transfer-Encoding: chunked")),
        (b"GET / HTTP/1.1", (*WEBSOCKET, b"Upgrade: h2c")),
        (b"GET / HTTP/1.1", (b"Upgrade: websocket",)),
        (b"GET / HTTP/1.1", (b"Connection: Upgrade",)),
    ],
)
def test_only_a_get_without_a_body_that_names_one_protocol_is_upgraded(line: bytes, fields: tuple[bytes, ...]) -> None:
    assert passed_upgrade(head(*fields, line=line)) == b""


def test_an_empty_body_is_none() -> None:
    assert passed_upgrade(head(*WEBSOCKET, b"Content-Length: 0")) == b"websocket"


# the way back


def test_a_response_comes_back_with_its_fields_in_their_order() -> None:
    fields = [(b"server", b"x"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"content-length", b"3")]
    assert response_fields(fields) == fields


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP - {b"expect", b"http2-settings", b"proxy"}))
def test_a_field_for_the_upstreams_connection_does_not_come_back(name: bytes) -> None:
    assert response_fields([(b"a", b"1"), (name, b"x"), (b"b", b"2")]) == [(b"a", b"1"), (b"b", b"2")]


def test_what_the_upstream_names_in_connection_does_not_come_back_unless_it_is_protected() -> None:
    named = b"close, X-One, Content-Length, set-cookie, Content-Type, Cache-Control"
    kept = [
        (b"content-length", b"3"),
        (b"set-cookie", b"a=1"),
        (b"content-type", b"a/b"),
        (b"cache-control", b"private"),
    ]
    assert response_fields([(b"connection", named), (b"x-one", b"1"), *kept]) == kept


def test_all_of_what_a_426_asks_for_is_passed_on() -> None:
    asked = [(b"upgrade", b"websocket"), (b"upgrade", b"x/1")]
    assert required_upgrade([(b"a", b"1"), asked[0], (b"connection", b"upgrade"), asked[1]]) == asked
    assert required_upgrade([(b"a", b"1")]) == []


def test_a_length_beside_a_transfer_encoding_is_none() -> None:
    assert response_fields([(b"content-length", b"3"), (b"transfer-encoding", b"chunked"), (b"a", b"1")]) == [
        (b"a", b"1")
    ]


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=8).map(bytes.lower), st.binary(max_size=12)), max_size=8))
def test_the_way_back_keeps_the_order_and_changes_no_field(fields: Fields) -> None:
    back = response_fields(fields)
    places = [place for place, field in enumerate(fields) if field in back]
    assert [fields[place] for place in places] == back
    assert all(before < after for before, after in pairwise(places))
