"""The hops of a request, as `Forwarded` (RFC 7239) and `X-Forwarded-*` name them. Nothing is believed here.

Facts      Each proxy appends an element to the list that it has received. Proxies leave out quotes that the RFC wants.
Hazard     A quote that a client leaves open swallows what a proxy appends.
Answer     Each field line is parsed by itself. One that is malformed is a hop without a client. `trusted.py` says which
           of the hops are believed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

# host and port; the port is 0 if it is not known
Address = tuple[str, int]
# the same; or path and None of a unix socket
ServerAddress = tuple[str, int | None]

X_FORWARDED_NAMES: Final = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port")

# schemes that a hop may name, as applications know them
SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}

# elements of a list that are read, from the right: more proxies than any path has
MOST_HOPS: Final = 32

_LARGEST_PORT: Final = 65535

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


class Hop(NamedTuple):
    """What a proxy says of the request that it received. `client` is None if it is malformed, unknown or obfuscated;
    the others are empty if it says nothing of them."""

    client: Address | None
    scheme: str = ""
    host: str = ""
    port: str = ""


def plain_address(host: str) -> str:
    """Return a connection's address as the fields have it: without a zone, and as IPv4 if it is mapped into IPv6.
    ValueError for other text."""
    return str(plain(ip_address(host.partition("%")[0])))


def is_well_formed(line: str) -> bool:
    """Return True if a field `Forwarded` can be read to its end. What is appended to another one may be swallowed, for
    example by an open quote."""
    return _elements(line) is not None


def forwarded_hops(lines: list[str]) -> list[Hop]:
    """Return the hops of the fields `Forwarded`, the last proxy's first. A malformed field is one hop without a
    client."""
    hops: list[Hop] = []
    for line in reversed(lines):
        hops += reversed(_elements(line) or [Hop(None)])
    return hops


def _elements(line: str) -> list[Hop] | None:
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
            hops.append(Hop(_node(given.get("for", "")), given.get("proto", ""), given.get("host", "")))
        at = end.end()
    return hops


def x_forwarded_hops(fields: dict[bytes, list[str]]) -> list[Hop]:
    """Return the hops of the fields `X-Forwarded-*`, the last proxy's first."""
    clients, *others = (
        [part.strip(" \t") for line in fields.get(name, ()) for part in line.split(",")] for name in X_FORWARDED_NAMES
    )
    hops = []
    # without a list of clients, the last proxy's other fields are one hop
    for place in list(reversed(range(len(clients) or 1)))[:MOST_HOPS]:
        # lists of one length belong together; else the last value is the last proxy's
        rest = [(values[place] if len(values) == len(clients) else values[-1]) if values else "" for values in others]
        hops.append(Hop(_node(clients[place]) if clients else None, *rest))
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
    return str(plain(address)), port


def server_of(hop: Hop, scheme: str, own: ServerAddress | None) -> ServerAddress | None:
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


def plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address of one that is mapped into IPv6."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _unquoted(value: str) -> str:
    return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
