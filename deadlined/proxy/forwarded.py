"""What an upstream is told of where a request comes from: `Forwarded` and `X-Forwarded-*`, as a proxy writes them.

Facts      Upstreams learn from these fields (RFC 7239) for whom the proxy asks.
Hazard     A client that writes such a field chooses the address by which it is limited and permitted.
Answer     What a client says of where it comes from is dropped. A trusted proxy's word is kept and continued, in the
           fields that it writes: a second list that began here would name that proxy as the client. A `Forwarded` that
           cannot be read to its end would swallow what is appended, so it is dropped with all before it.
Cost       What depends on the connection only is made once for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from ..http import field_lines
from ..http.forwarded import Address, ServerAddress, is_well_formed, plain_address
from ..http.trusted import TrustedProxies, is_gone
from ..value import Value

Fields = list[tuple[bytes, bytes]]

_FORWARDED: Final = b"forwarded"
_X_FOR: Final = b"x-forwarded-for"
_X_PROTO: Final = b"x-forwarded-proto"
_X_HOST: Final = b"x-forwarded-host"
_X_PORT: Final = b"x-forwarded-port"
# what the client asked for; a proxy that writes some of them leaves out what the others say already
_X_ASKED: Final = frozenset((_X_PROTO, _X_HOST, _X_PORT))
_X_FAMILY: Final = _X_ASKED | {_X_FOR}

# a value of Host for which nothing is remembered
_LONG_HOST: Final = 256

_UNKNOWN: Final = b"unknown"
_PORTS: Final = {"http": b"80", "https": b"443"}

# RFC 9110, 5.6.2; a value of Forwarded that is none needs quotes
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


# compared by identity, so that it is a fast key
@dataclass(frozen=True, slots=True, eq=False)
class Peer(Value):
    """What upstreams are told of the peer of a connection. `proxies`: the trusted ones if it is one of them, else None.
    `address`: without a port, or `unknown`. `port`: the usual one of `scheme`. `element`: `for` and `proto` of a
    Forwarded."""

    proxies: TrustedProxies | None
    address: bytes
    scheme: bytes
    port: bytes
    element: bytes

    def is_believed(self, name: bytes) -> bool:
        """Return True if the peer may say in a field of this name where a request comes from."""
        return self.proxies is not None and self.proxies.believes(name)


# keyed by the client's port, too, so a connection with many requests has one entry
@lru_cache(maxsize=1024)
def peer_of(
    client: Address | None, scheme: str, server: ServerAddress | None, proxies: TrustedProxies | None = None
) -> Peer:
    """Return what upstreams are told of a connection's peer. `client`, `scheme`, `server`: as `TrustedProxies.origin`
    takes them. `proxies`: those that are believed, None for none."""
    if proxies is not None and (is_gone(client, server) or not proxies.trusts(client)):
        proxies = None
    address, node = _address_and_node(client)
    element = b"for=%s;proto=%s" % (_quoted(node), scheme.encode("ascii"))
    return Peer(proxies, address, scheme.encode("ascii"), _PORTS[scheme], element)


def tells_origin(name: bytes) -> bool:
    """Return True for a field that says where a request comes from."""
    return name.startswith(b"x-forwarded") or name in (_FORWARDED, b"x-real-ip")


def add_claim(claims: dict[bytes, bytes], name: bytes, value: bytes) -> None:
    """Add what a trusted proxy says. Repeated fields become one list."""
    if name == _FORWARDED and not is_well_formed(value.decode("latin-1")):
        claims[name] = b""
    else:
        claims[name] = joined(claims.get(name, b""), value)


def forwarding(peer: Peer, host: bytes, claims: dict[bytes, bytes]) -> bytes:
    """Return the lines that say where a request comes from. `claims`: what a trusted proxy says of it, to which the
    proxy itself is added. `host`: what the client has asked for, b"" if it has not said it."""
    if claims or len(host) > _LONG_HOST:
        return field_lines(_continued_claims(peer, host, claims))
    return _first_claims(peer, host)


def joined(known: bytes, value: bytes) -> bytes:
    """Append to a list (RFC 9110, 5.3); empty ones are left out."""
    return known + b", " + value if known and value else known or value


def _address_and_node(client: Address | None) -> tuple[bytes, bytes]:
    """Return the address of a client, and its node for Forwarded, which has the port."""
    try:
        address = plain_address(client[0]) if client is not None else ""
    except ValueError:
        address = ""
    if client is None or not address:
        return _UNKNOWN, _UNKNOWN
    host = f"[{address}]" if isinstance(ip_address(address), IPv6Address) else address
    return address.encode("ascii"), (f"{host}:{client[1]}" if client[1] else host).encode("ascii")


# most requests of a connection are for one host
@lru_cache(maxsize=1024)
def _first_claims(peer: Peer, host: bytes) -> bytes:
    return field_lines(_continued_claims(peer, host, {}))


def _continued_claims(peer: Peer, host: bytes, claims: dict[bytes, bytes]) -> Fields:
    """Add this proxy to `claims`, in place, and return them as fields."""
    in_x = not _X_FAMILY.isdisjoint(claims)
    in_forwarded = _FORWARDED in claims
    neither = not in_x and not in_forwarded
    if in_x or neither:
        claims[_X_FOR] = _continued(claims.get(_X_FOR, b""), peer, peer.address)
        if _X_ASKED.isdisjoint(claims):
            _add_asked(claims, peer, host)
    if in_forwarded or neither:
        element = peer.element + (b";host=" + _quoted(host) if host else b"")
        claims[_FORWARDED] = _continued(claims.get(_FORWARDED, b""), peer, element)
    return list(claims.items())


def _continued(known: bytes, peer: Peer, own: bytes) -> bytes:
    """Append to the list of a trusted proxy. One without an address, on a unix socket, is left out, because a reader
    stops where an address is missing, and would not find the client."""
    return known if known and peer.address == _UNKNOWN else joined(known, own)


def _add_asked(claims: dict[bytes, bytes], peer: Peer, host: bytes) -> None:
    claims[_X_PROTO] = peer.scheme
    if host:
        _, colon, port = host.rpartition(b":")
        claims[_X_HOST] = host
        # not the port of the server's socket, which may be another one than the client has connected to
        claims[_X_PORT] = port if colon and port.isdigit() else peer.port


def _quoted(value: bytes) -> bytes:
    """Return a value of Forwarded, with quotes where it needs them (RFC 7239, 4)."""
    if _TOKEN.fullmatch(value):
        return value
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
