"""Who a request comes from, as trusted proxies say: `Forwarded` (RFC 7239) and `X-Forwarded-*`.

Facts      A proxy appends the address of its client to the list that it has received. A client can send such a list,
           too, and most proxies pass on what they do not know: nginx, which sets X-Forwarded-For, passes Forwarded on.
Hazard     A client that is believed chooses the address by which it is limited, logged and permitted.
Answer     Nothing is believed unless the connection comes from a trusted proxy. The lists are read from the right, the
           end that the nearest proxy has written, for as long as the address that was read is a trusted proxy's: the
           first other one is the client. What is malformed, unknown or obfuscated ends the walk. Each field line is
           parsed by itself, so that a quote which a client leaves open swallows nothing that a proxy has written.
           If both fields are there, only what they agree on is believed: one of them may be the client's. So a client
           can hide its address, but not choose it. Where it is said which fields the proxies write, the others do not
           count, and it can do neither.
           The Host field is left as it is: many proxies pass on an X-Forwarded-Host of their client's.
Cost       None without trusted proxies. With them some microseconds per request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

# host and port; the port is 0 if it is not known
Address = tuple[str, int]
# the same; or path and None of a unix socket
ServerAddress = tuple[str, int | None]
Headers = Sequence[tuple[bytes, bytes]]

UNIX: Final = "unix"

# which fields trusted proxies write
BOTH: Final = "both"
FORWARDED: Final = "forwarded"
X_FORWARDED: Final = "x-forwarded"
WRITTEN: Final = (BOTH, FORWARDED, X_FORWARDED)

# what is allowed, for error messages
ALLOWED: Final = "write an address, a network such as 10.0.0.0/8, or unix"

_LARGEST_PORT: Final = 65535
# bits before an IPv4 address that is mapped into IPv6
_MAPPED: Final = 96
# elements of a list that are read, from the right: more proxies than any path has
_MOST_HOPS: Final = 32

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED: Final = r'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
# RFC 7239 wants quotes around colons and brackets, and not all proxies write them
_VALUE: Final = _TOKEN.replace("[!", r"[\[\]:!")
_PAIR: Final = rf"({_TOKEN})=({_VALUE}|{_QUOTED})"
_PAIRS: Final = re.compile(_PAIR)
_ELEMENT: Final = re.compile(rf"(?:{_PAIR})?(?:;(?:{_PAIR})?)*")
_NEXT: Final = re.compile(r"[ \t]*(?:,[ \t]*|$)")
_ESCAPED: Final = re.compile(r"\\(.)")

# an address, with a port: 192.0.2.1, 192.0.2.1:80, [2001:db8::1], [2001:db8::1]:80, and a bare 2001:db8::1
_NODE: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<v4>[0-9.]+))(?::(?P<port>[0-9]{1,5}))?|(?P<bare>[0-9A-Fa-f:.]+)"
)
# of an IPv4 address that is mapped into IPv6, in full, with brackets and a port
_LONGEST_NODE: Final = 53
_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_\-.~]+)(?::(?P<port>[0-9]{1,5}))?")
_DIGITS: Final = re.compile(r"[0-9]{1,5}")
_X_FORWARDED: Final = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port")
_SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


class Origin(NamedTuple):
    """Where a request comes from: its client, the scheme that the client used, and the host and port that it asked for.
    An address is None if neither the connection nor a proxy gives one."""

    client: Address | None
    scheme: str
    server: ServerAddress | None


class _Hop(NamedTuple):
    """What a proxy says of the request that it received. `client` is None if it is malformed, unknown or obfuscated;
    the others are empty if it says nothing of them."""

    client: Address | None
    scheme: str = ""
    host: str = ""
    port: str = ""


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
            if (name == b"forwarded" or name in _X_FORWARDED) and self.believes(name):
                fields.setdefault(name, []).append(value.decode("latin-1"))
        lines = fields.pop(b"forwarded", None)
        one = None if lines is None else self._walk(_forwarded_hops(lines), here)
        other = self._walk(_x_forwarded_hops(fields), here) if fields else None
        return (one or other) if one is None or other is None else _agreed(one, other, here)

    def _walk(self, hops: list[_Hop], here: Origin) -> Origin:
        """Follow the hops, the last proxy's first, until one that is not a trusted proxy's."""
        client, scheme, server = here
        own = here.server
        for hop in hops[:_MOST_HOPS]:
            scheme = _SCHEMES.get(hop.scheme.lower(), scheme)
            server = _server(hop, scheme, own) or server
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


def plain_address(host: str) -> str:
    """Return a connection's address as the fields have it: without a zone, and as IPv4 if it is mapped into IPv6.
    ValueError for other text."""
    return str(_plain(ip_address(host.partition("%")[0])))


def is_well_formed(line: str) -> bool:
    """Return True if a field `Forwarded` can be read to its end. What is appended to another one may be swallowed, for
    example by an open quote."""
    return _elements(line) is not None


def _agreed(one: Origin, other: Origin, here: Origin) -> Origin:
    """Return what both say alike, and the connection's own values for the rest."""
    if one.client is None or other.client is None or one.client[0] != other.client[0]:
        return here
    return Origin(
        one.client if one.client[1] else other.client,
        one.scheme if one.scheme == other.scheme else here.scheme,
        one.server if one.server == other.server else here.server,
    )


def _forwarded_hops(lines: list[str]) -> list[_Hop]:
    """Return the hops of the fields `Forwarded`, the last proxy's first. A malformed field is one hop without a
    client."""
    hops: list[_Hop] = []
    for line in reversed(lines):
        hops += reversed(_elements(line) or [_Hop(None)])
    return hops


def _elements(line: str) -> list[_Hop] | None:
    """Return the elements of a field `Forwarded` in their order, None if it is malformed."""
    hops = []
    at, line = 0, line.strip(" \t")
    while at < len(line):
        element = _ELEMENT.match(line, at)
        end = None if element is None else _NEXT.match(line, element.end())
        if element is None or end is None:
            return None
        pairs = [(name.lower(), _unquoted(value)) for name, value in _PAIRS.findall(element[0])]
        given = dict(pairs)
        if len(given) < len(pairs):
            # a parameter must not come twice (RFC 7239, 4)
            return None
        if pairs:
            hops.append(_Hop(_node(given.get("for", "")), given.get("proto", ""), given.get("host", "")))
        at = end.end()
    return hops


def _x_forwarded_hops(fields: dict[bytes, list[str]]) -> list[_Hop]:
    """Return the hops of the fields `X-Forwarded-*`, the last proxy's first."""
    clients, *others = (
        [part.strip(" \t") for line in fields.get(name, ()) for part in line.split(",")] for name in _X_FORWARDED
    )
    hops = []
    # without a list of clients, the last proxy's other fields are one hop
    for place in list(reversed(range(len(clients) or 1)))[:_MOST_HOPS]:
        # lists of one length belong together; else the last value is the last proxy's
        rest = [(values[place] if len(values) == len(clients) else values[-1]) if values else "" for values in others]
        hops.append(_Hop(_node(clients[place]) if clients else None, *rest))
    return hops


def _node(text: str) -> Address | None:
    """Return the address and port of a node, None if it is unknown, obfuscated or malformed."""
    # what is longer may be anything of a client's, and would be remembered
    return _known_node(text) if len(text) <= _LONGEST_NODE else None


@lru_cache(maxsize=4096)
def _known_node(text: str) -> Address | None:
    match = _NODE.fullmatch(text)
    port = int(match["port"] or 0) if match else 0
    if match is None or port > _LARGEST_PORT:
        return None
    try:
        address = ip_address(match["v6"] or match["v4"] or match["bare"])
    except ValueError:
        return None
    if (match["v6"] is None) == (address.version == 6) and match["bare"] is None:
        return None
    return str(_plain(address)), port


def _server(hop: _Hop, scheme: str, own: ServerAddress | None) -> ServerAddress | None:
    """Return the host and port that the client asked for, None if the proxy names none or a malformed one. `own`: that
    of the connection, whose host counts if only a port is given."""
    match = _HOST.fullmatch(hop.host)
    port = _port((match and match["port"]) or hop.port)
    if match is not None:
        return match["name"].strip("[]"), port or (443 if scheme == "https" else 80)
    return (own[0], port) if port and own is not None and own[1] is not None else None


def _port(text: str) -> int:
    """Return the number of a port, 0 for other text."""
    number = int(text) if _DIGITS.fullmatch(text) else 0
    return number if number <= _LARGEST_PORT else 0


@lru_cache(maxsize=4096)
def _is_in(host: str, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    try:
        address = _plain(ip_address(host.partition("%")[0]))
    except ValueError:
        return False
    return any(address in network for network in networks)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address of one that is mapped into IPv6."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _unquoted(value: str) -> str:
    return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
