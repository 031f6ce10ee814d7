"""The target of a request and the host that it is for (RFC 9112, 3.2; RFC 3986, 3.2).

Facts      A target is a path with a query (origin-form), a whole URL (absolute-form), `*`, or host and port (for
           CONNECT only). A URL names the host a second time, beside the Host field.
Hazard     A server that guesses finds a path where a proxy before it found another one. One that routes by the Host
           field serves another site than one that routes by the URL.
Answer     Only the first three forms are read, each by its grammar; CONNECT is refused before. The host of a URL
           replaces the value of the Host field, as RFC 9112, 3.2.2 demands, so that there is one host to see. Refusing
           two that differ would be stricter, but the RFC tells proxies to use the URL as well, so both ends of a path
           agree without it.
Cost       For a path, two checks: it begins with `/` and has no `#`, which would begin a fragment.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Final, NamedTuple

from ..errors import BadRequest

# RFC 3986, 3.2.2 and 3.2.3: reg-name or IP-literal, then a port; user information is no part of a host
_AUTHORITY: Final = re.compile(
    rb"(?:\[(?:(?P<v6>[0-9A-Fa-f:.]+)|[vV][0-9A-Fa-f]+\.[\w\-.~!$&'()*+,;=:]+)\]|(?:[\w\-.~!$&'()*+,;=]|%[0-9A-Fa-f]{2})+)"
    rb"(?::(?P<port>[0-9]{0,5}))?"
)
_LARGEST_PORT: Final = 65535

# authority, path and query; a fragment is not sent
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]*)(/[^?#]*)?(\?[^#]*)?", re.IGNORECASE)


class Target(NamedTuple):
    """A target that is not in origin-form. `authority` is the host and port of a URL, None for `*`."""

    path_and_query: bytes
    authority: bytes | None


def is_authority(value: bytes) -> bool:
    """Return True for `host` and `host:port`: a name, an IPv4 address or an IPv6 address in brackets."""
    match = _AUTHORITY.fullmatch(value)
    if match is None or int(match["port"] or 0) > _LARGEST_PORT:
        return False
    address = match["v6"]
    return address is None or _is_ipv6(address.decode("ascii"))


def _is_ipv6(address: str) -> bool:
    try:
        IPv6Address(address)
    except AddressValueError:
        return False
    return True


def parse_target(method: str, target: bytes) -> Target:
    """Parse a target that is not in origin-form.

    Raise BadRequest for a target of no known form, for `*` with a method other than OPTIONS, and for a URL that is not
    http or https or whose host is missing or malformed.
    """
    if target == b"*" and method == "OPTIONS":
        return Target(target, None)
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise BadRequest(400, "the target of the request is neither a path nor an http or https URL")
    authority, path, query = match.groups(b"")
    if not is_authority(authority):
        raise BadRequest(400, "the URL that is the target of the request has no valid host")
    # RFC 9112, 3.2.4: a client asks a proxy for `*` by a URL without path and query
    nothing = b"*" if method == "OPTIONS" and not query else b"/"
    return Target((path or nothing) + query, authority)
