"""The header fields of what is forwarded: made anew for each message, from those that were received.

Facts      Some fields are for one connection only, and Connection names more of them (RFC 9110, 7.6.1). WSGI, CGI and
           PHP read `X_Forwarded_For`, and some `X.Forwarded.For`, as X-Forwarded-For.
Hazard     A client that names a field in Connection takes it away behind the party that has checked or written it. An
           upgrade to another HTTP (h2c) carries requests past the proxy.
Answer     Nothing is passed on of what frames a message or is for its connection, but the Upgrade of a 426. A small set
           of fields cannot be taken away. `forwarded.py` has those that say where a request comes from.
Cost       One look-up per field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from ..http import Request, field_lines
from ..http.wire.remembered import remember
from .certificates import CLIENT_CERT, CLIENT_CERT_CHAIN
from .forwarded import Fields, Peer, add_claim, forwarding, joined, tells_origin
from .hops import COUNTED, MAX_FORWARDS, counted_down

_CONNECTION: Final = b"connection"
_LENGTH: Final = b"content-length"
_ENCODING: Final = b"transfer-encoding"
_HOST_NAME: Final = b"host"
_VIA_NAME: Final = b"via"
_UPGRADE: Final = b"upgrade"

# for one connection only, as is everything whose name begins with _PROXY_PREFIX
_HOP_BY_HOP: Final = frozenset((_CONNECTION, b"keep-alive", b"te", b"trailer", _ENCODING, _UPGRADE))
_PROXY_PREFIX: Final = b"proxy-"

# The same of requests. The proxy answers an Expect itself, and frames the body itself. CGI programs read a field Proxy
# as the variable HTTP_PROXY, and send their own requests there. Proxies pass on a Client-Cert of a client, so that even
# what a trusted one sends says nothing
_NOT_SENT: Final = _HOP_BY_HOP | {b"http2-settings", b"expect", _LENGTH, b"proxy", CLIENT_CERT, CLIENT_CERT_CHAIN}

# What Connection cannot take away: fields that say how a body is read, who asks, and who may read or keep the answer. A
# client can leave out its own, but not what a party between has checked or written
_PROTECTED: Final = frozenset(
    (
        *(_HOST_NAME, _VIA_NAME, b"authorization", b"cookie", b"origin"),
        *(_LENGTH, b"content-type", b"content-encoding", b"content-range"),
        *(b"cache-control", b"vary", b"set-cookie", b"location", b"www-authenticate"),
        *(b"content-security-policy", b"strict-transport-security"),
    )
)

# values of Connection that name no other field
_COMMON: Final = frozenset((b"close", b"keep-alive", b"upgrade"))
_NOTHING: Final[frozenset[bytes]] = frozenset()

# how a field of a request is treated
_PASSED: Final = 0
_DROPPED: Final = 1
# says where the request comes from
_CLAIM: Final = 2
_HOST: Final = 3
_VIA: Final = 4
_HOPS: Final = 5

# the fields that are treated each in its own way
_SPECIAL: Final = {_HOST_NAME: _HOST, _VIA_NAME: _VIA, MAX_FORWARDS: _HOPS}

# what was found out by name: how a field of a request is treated, and whether one of a response is for one connection
_kinds: Final[dict[bytes, int]] = {}
_own: Final[dict[bytes, bool]] = {}

# translates to `-` every character of a name that some upstream may read as `-`
_SAME: Final = bytes(byte if chr(byte).isalnum() and byte < 0x80 else ord("-") for byte in range(256))

# RFC 9110, 7.8: one protocol
_PROTOCOL: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)(?:/[!#$%&'*+\-.^_`|~0-9A-Za-z]+)?")
# an upstream that speaks one of them after 101 takes requests that no proxy has seen
_NOT_TUNNELLED: Final = (b"h2", b"h3", b"http", b"tls")

# bodies have a meaning in requests of these, so upstreams may insist on a length (RFC 9110, 8.6)
_WITH_BODY: Final = frozenset(("POST", "PUT", "PATCH"))

_HTTP10: Final = b"1.0 deadlined"
_HTTP11: Final = b"1.1 deadlined"


def request_lines(
    request: Request, peer: Peer, authority: bytes, upgrade: bytes = b"", certificate: bytes = b""
) -> bytes:
    """Return the fields of the request to an upstream, written by `field_lines`. `authority`: the value of Host if the
    request has none. `upgrade`: what `passed_upgrade` has returned if the upstream is asked for it, b"" if it is not.
    `certificate`: the value of Client-Cert, b"" for none; that of a trusted proxy is not its client's.

    They frame the body as the request did: chunked if it was chunked, else by its length, if it has one.
    """
    named = _named(request.headers)
    host: bytes | None = None
    via = b""
    claims: dict[bytes, bytes] = {}
    # Host comes first
    passed: Fields = [(_HOST_NAME, b"")]
    field: Any
    for field in request.headers:
        name: bytes = field[0]
        value: bytes = field[1]
        kind = _kinds.get(name, -1)
        if kind < 0:
            kind = _kind_of(name)
        if kind == _PASSED:
            if name not in named:
                passed.append(field)
        elif kind == _HOST:
            host = value
        elif kind == _VIA:
            via = joined(via, value)
        elif kind == _CLAIM and peer.is_believed(name):
            add_claim(claims, name, value)
        elif kind == _HOPS:
            passed += _hops(request.method, value, named)
    via = joined(via, _HTTP10 if request.version == "1.0" else _HTTP11)
    passed[0] = (_HOST_NAME, authority if host is None else host)
    added = [(_VIA_NAME, via), *_framing(request), *_identity(peer, certificate)]
    if upgrade:
        added += ((_CONNECTION, b"Upgrade"), (_UPGRADE, upgrade))
    return b"".join((field_lines(passed), forwarding(peer, host or b"", claims), field_lines(added)))


def response_fields(headers: Fields) -> Fields:
    """Return the fields of an upstream's response that go to the client. Names are in lower case.

    Content-Length stays, unless there is Transfer-Encoding: then it does not say the length (RFC 9112, 6.3).
    """
    dropped = _NOTHING
    passed: Fields = []
    # not typed: compiled code would take each tuple apart and make it again
    field: Any
    for field in headers:
        name: bytes = field[0]
        if not _is_for_connection(name):
            passed.append(field)
        elif name == _CONNECTION:
            dropped |= _named((field,))
        elif name == _ENCODING:
            dropped |= {_LENGTH}
    return [field for field in passed if field[0] not in dropped] if dropped else passed


def required_upgrade(headers: Fields) -> Fields:
    """Return the fields of an upstream's 426 that say what the client must speak instead, without which the answer
    means nothing (RFC 9110, 15.5.22). The server names them in Connection."""
    return [field for field in headers if field[0] == _UPGRADE]


def passed_upgrade(request: Request) -> bytes:
    """Return the protocol that an upstream may be asked for, b"" if there is none: it must be the only one, and come
    with a GET without a body. HTTP and TLS are never passed on."""
    match = _PROTOCOL.fullmatch(request.upgrade)
    if match is None or match[1].lower().startswith(_NOT_TUNNELLED):
        return b""
    if request.method != "GET" or request.has_body:
        return b""
    return request.upgrade


def _kind_of(name: bytes) -> int:
    """Return how a field of a request is treated, and remember it."""
    same = name.translate(_SAME)
    if same in _NOT_SENT or same.startswith(_PROXY_PREFIX):
        kind = _DROPPED
    elif tells_origin(same):
        # no proxy writes it otherwise, so another way to write it is a client's
        kind = _CLAIM if same == name else _DROPPED
    else:
        kind = _SPECIAL.get(name, _PASSED)
    remember(_kinds, name, kind, b"", len(name))
    return kind


def _is_for_connection(name: bytes) -> bool:
    """Return True if a field of a response is for one connection only."""
    known = _own.get(name)
    if known is None:
        known = name in _HOP_BY_HOP or name.startswith(_PROXY_PREFIX)
        remember(_own, name, known, b"", len(name))
    return known


def _named(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the names of the fields that Connection takes away."""
    named = _NOTHING
    for name, value in headers:
        if name == _CONNECTION:
            options = value.lower()
            if options not in _COMMON:
                named |= {option.strip() for option in options.split(b",")}
    return named - _PROTECTED if named else named


def _framing(request: Request) -> Fields:
    if request.chunked:
        return [(_ENCODING, b"chunked")]
    length = request.content_length
    if length or (length == 0 and request.method in _WITH_BODY):
        return [(_LENGTH, b"%d" % length)]
    return []


def _identity(peer: Peer, certificate: bytes) -> Fields:
    return [(CLIENT_CERT, certificate)] if certificate and peer.proxies is None else []


def _hops(method: str, value: bytes, named: frozenset[bytes]) -> Fields:
    """Return Max-Forwards as it is sent on. Where it counts, Connection cannot take it away: that would undo it."""
    if method in COUNTED:
        return [(MAX_FORWARDS, counted_down(value))]
    return [] if MAX_FORWARDS in named else [(MAX_FORWARDS, value)]
