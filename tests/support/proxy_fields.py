"""The fields that a proxy sends to an upstream, for tests of them."""

from __future__ import annotations

from deadlined.http import Request
from deadlined.http.trusted import Origin, TrustedProxies
from deadlined.proxy.fields import request_lines
from deadlined.proxy.forwarded import Peer, peer_of
from tests.support.requests import get, one

Fields = list[tuple[bytes, bytes]]

CLIENT = ("192.0.2.1", 4711)
FRONT = ("10.0.0.1", 1234)
HERE = ("10.0.0.2", 8000)
PROXIES = TrustedProxies(["10.0.0.0/8"])

# a client that nobody trusts, and a proxy that is trusted
STRANGER = peer_of(CLIENT, "http", HERE, PROXIES)
TRUSTED = peer_of(FRONT, "http", HERE, PROXIES)

HOP_BY_HOP = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"} | {
    *(b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"proxy", b"http2-settings", b"expect")
}


# who reads the fields behind the proxy, and the connection that they come by
BEHIND = TrustedProxies(["10.0.0.0/8"])
UPSTREAM = Origin(("10.0.0.2", 5555), "http", ("10.0.0.3", 9000))


def request_fields(
    request: Request, peer: Peer, authority: bytes, upgrade: bytes = b"", certificate: bytes = b""
) -> Fields:
    """The fields that are sent to the upstream, as they stand on the wire."""
    empty, *lines = request_lines(request, peer, authority, upgrade, certificate).split(b"\r\n")
    assert empty == b""
    fields = []
    for line in lines:
        name, colon, value = line.partition(b": ")
        assert colon
        fields.append((name, value))
    return fields


def sent(*fields: bytes, peer: Peer = STRANGER, line: bytes = b"GET / HTTP/1.1", host: bytes = b"Host: a") -> Fields:
    """What is sent to the upstream for a request with these fields."""
    return request_fields(one(get(*fields, line=line, host=host)), peer, b"upstream:8080")


def claims(fields: Fields) -> dict[str, str]:
    """What the fields say of where the request comes from."""
    return {
        name.decode(): value.decode("latin-1")
        for name, value in fields
        if name.startswith(b"x-forwarded") or name in (b"forwarded", b"x-real-ip", b"client-cert", b"client-cert-chain")
    }
