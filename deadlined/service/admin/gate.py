"""Who may ask the admin listener: pure rules about one request.

Facts      A browser sends requests to 127.0.0.1 for any page that it shows. The page cannot read the answers of another
           origin, unless its own name is made to resolve to 127.0.0.1 (DNS rebinding); the Host field then has that
           name. A page of another origin can send a POST without reading the answer; browsers then send Origin.
Hazard     A page on the internet reads the clients' addresses, or drains the server.
Answer     With a token: every request must have it, but for the two probes, which tell nothing but whether to send
           traffic, and for which orchestrators cannot keep a secret. Without one the listener is on a loopback address
           or a unix socket, and the Host field must be an address, localhost or the configured name. A request that a
           browser sends for another site is refused in any case. Tokens are compared in constant time.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from dataclasses import dataclass

PROBES = frozenset(("/livez", "/readyz"))

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Refusal:
    """Why a request is refused: a status and a sentence."""

    status: int
    sentence: str


@dataclass(frozen=True)
class Gate:
    """The rules of one listener. `token` is None if none is needed. `names`: the host names by which a browser may call
    the listener; None on a unix socket, which a browser cannot reach."""

    token: bytes | None
    names: frozenset[str] | None

    def check(self, path: str, headers: Headers) -> Refusal | None:
        """Return why the request is refused, None if it is not."""
        if _is_cross_site(headers):
            return Refusal(403, "a browser sent this for a page of another site, which may not use the admin listener")
        if self.token is not None:
            if path in PROBES or self._has_token(headers):
                return None
            return Refusal(
                401, "send the token of --admin-token-file as `Authorization: Bearer TOKEN`, or as a Basic password"
            )
        if self.names is not None and not _is_named(_value(headers, b"host"), self.names):
            return Refusal(
                421, "the Host field names another server; call the admin listener by its address or as localhost"
            )
        return None

    def _has_token(self, headers: Headers) -> bool:
        assert self.token is not None
        given = [value for name, value in headers if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(_credentials(given[0]), self.token)


def _credentials(value: bytes) -> bytes:
    """Return the token of an Authorization field: of the scheme Bearer, or the password of Basic. b"", which is never a
    token, if it has none."""
    scheme, _, rest = value.partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip(b" ")
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(rest.strip(b" "), validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _is_cross_site(headers: Headers) -> bool:
    if _value(headers, b"sec-fetch-site") in (b"cross-site", b"same-site"):
        return True
    origin = _value(headers, b"origin")
    return origin is not None and origin.partition(b"://")[2] != _value(headers, b"host")


def _value(headers: Headers, wanted: bytes) -> bytes | None:
    return next((value for name, value in headers if name == wanted), None)


def _is_named(host: bytes | None, names: frozenset[str]) -> bool:
    """Return True if the Host field is an address or one of `names`. A request of HTTP/1.0 may lack it: no browser's
    does."""
    if not host:
        return True
    name = host_name(host.decode("latin-1"))
    return name in names or is_address(name)


def host_name(host: str) -> str:
    """Return the name or the address of a Host field, in lower case, without brackets and port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def is_address(name: str) -> bool:
    """Return True for an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
