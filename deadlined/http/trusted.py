"""Who a request comes from, as trusted proxies say: `Forwarded` (RFC 7239) and `X-Forwarded-*`.

Facts      A proxy appends the address of its client to the list that it has received. A client can send such a list,
           too, and most proxies pass on what they do not know: nginx, which sets X-Forwarded-For, passes Forwarded on.
Hazard     A client that is believed chooses the address by which it is limited, logged and permitted.
Answer     Nothing is believed unless the connection comes from a trusted proxy. The lists are read from the right, the
           end that the nearest proxy has written, for as long as the address that was read is a trusted proxy's: the
           first other one is the client. What is malformed, unknown or obfuscated ends the walk. If both fields are
           there, only what they agree on is believed: one of them may be the client's. So a client can hide its
           address, but not choose it. Where it is said which fields the proxies write, the others do not count, and it
           can do neither.
           The Host field is left as it is: many proxies pass on an X-Forwarded-Host of their client's.
Cost       None without trusted proxies. With them some microseconds per request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from .forwarded import (
    MOST_HOPS,
    SCHEMES,
    X_FORWARDED_NAMES,
    Address,
    Hop,
    ServerAddress,
    forwarded_hops,
    plain,
    server_of,
    x_forwarded_hops,
)

Headers = Sequence[tuple[bytes, bytes]]

UNIX: Final = "unix"

# which fields trusted proxies write
BOTH: Final = "both"
FORWARDED: Final = "forwarded"
X_FORWARDED: Final = "x-forwarded"
WRITTEN: Final = (BOTH, FORWARDED, X_FORWARDED)

# what is allowed, for error messages
ALLOWED: Final = "write an address, a network such as 10.0.0.0/8, or unix"

# bits before an IPv4 address that is mapped into IPv6
_MAPPED: Final = 96


class Origin(NamedTuple):
    """Where a request comes from: its client, the scheme that the client used, and the host and port that it asked for.
    An address is None if neither the connection nor a proxy gives one."""

    client: Address | None
    scheme: str
    server: ServerAddress | None


def proxy(text: str) -> IPv4Network | IPv6Network | str:
    """Return the network of an address or CIDR, or UNIX. ValueError for other text."""
    if text == UNIX:
        return UNIX
    try:
        return _unmapped(ip_network(text))
    except ValueError as error:
        everyone = "; 0.0.0.0/0 and ::/0 are everyone" if text == "*" else ""
        host_bits = "; it has host bits set" if "host bits" in str(error) else ""
        raise ValueError(f"{text!r} is not a proxy{host_bits}: {ALLOWED}{everyone}") from None


def _unmapped(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """Return a network of IPv4 addresses that are mapped into IPv6 as one of IPv4, as addresses are compared."""
    first = network.network_address
    if isinstance(first, IPv6Address) and first.ipv4_mapped is not None and network.prefixlen >= _MAPPED:
        return IPv4Network((first.ipv4_mapped, network.prefixlen - _MAPPED))
    return network


class TrustedProxies:
    """The proxies that are believed. Immutable.

    `proxies`: what `proxy` accepts. `written`: the family of fields that they write, one of WRITTEN; the other one is
    as a client has sent it, and so not believed. They must set or remove each field of their family. ValueError for
    others.
    """

    def __init__(self, proxies: Iterable[str], written: str = BOTH) -> None:
        if written not in WRITTEN:
            raise ValueError(f"{written!r} is not known: choose one of {', '.join(WRITTEN)}")
        self._written = written
        found = [proxy(text) for text in proxies]
        self._unix = UNIX in found
        self._networks = tuple(network for network in found if not isinstance(network, str))

    def trusts(self, client: Address | None) -> bool:
        """Return True if the proxy at `client` is believed. None is a unix socket; a TCP peer that is gone has no
        address either, which `is_gone` tells."""
        return self._unix if client is None else _is_in(client[0], self._networks)

    def believes(self, name: bytes) -> bool:
        """Return True if a field that says where a request comes from, and has this name, is of a family that these
        proxies write."""
        return self._written in (BOTH, FORWARDED if name == b"forwarded" else X_FORWARDED)

    def origin(
        self, headers: Headers, client: Address | None, scheme: str, server: ServerAddress | None
    ) -> Origin | None:
        """Return where a request comes from, None if no trusted proxy says it. `client`, `scheme`, `server`: those of
        the connection. On a unix socket the client is None, and the server is None or has no port."""
        if not self.trusts(client) or is_gone(client, server):
            return None
        here = Origin(client, scheme, server)
        fields: dict[bytes, list[str]] = {}
        for name, value in headers:
            if (name == b"forwarded" or name in X_FORWARDED_NAMES) and self.believes(name):
                fields.setdefault(name, []).append(value.decode("latin-1"))
        lines = fields.pop(b"forwarded", None)
        one = None if lines is None else self._walk(forwarded_hops(lines), here)
        other = self._walk(x_forwarded_hops(fields), here) if fields else None
        return (one or other) if one is None or other is None else _agreed(one, other, here)

    def _walk(self, hops: list[Hop], here: Origin) -> Origin:
        """Follow the hops, the last proxy's first, until one that is not a trusted proxy's."""
        client, scheme, server = here
        own = here.server
        for hop in hops[:MOST_HOPS]:
            scheme = SCHEMES.get(hop.scheme.lower(), scheme)
            server = server_of(hop, scheme, own) or server
            if hop.client is None:
                break
            client = hop.client
            if not self.trusts(client):
                break
        return Origin(client, scheme, server)


def is_gone(client: Address | None, server: ServerAddress | None) -> bool:
    """Return True if a connection has no address of its client because the client is gone. On a unix socket there is
    none either, but over TCP the server's end has a port."""
    return client is None and server is not None and server[1] is not None


def _agreed(one: Origin, other: Origin, here: Origin) -> Origin:
    """Return what both say alike, and the connection's own values for the rest."""
    if one.client is None or other.client is None or one.client[0] != other.client[0]:
        return here
    return Origin(
        one.client if one.client[1] else other.client,
        one.scheme if one.scheme == other.scheme else here.scheme,
        one.server if one.server == other.server else here.server,
    )


@lru_cache(maxsize=4096)
def _is_in(host: str, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    try:
        address = plain(ip_address(host.partition("%")[0]))
    except ValueError:
        return False
    return any(address in network for network in networks)
