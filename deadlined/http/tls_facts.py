"""What TLS has agreed on with a client, and who the client is by its certificate."""

from __future__ import annotations

import ssl
from typing import Any, Final, NamedTuple

# the numbers of RFC 8446 and the RFCs before it
_VERSIONS: Final = {"TLSv1": 0x0301, "TLSv1.1": 0x0302, "TLSv1.2": 0x0303, "TLSv1.3": 0x0304}

# the short names of RFC 4514, 3; OpenSSL's long names of other types are LDAP's as well
_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}

# characters that mean something in a distinguished name (RFC 4514, 2.4)
_ESCAPED: Final = str.maketrans({character: f"\\{character}" for character in '"+,;<>\\'} | {"\0": "\\00"})


class TlsFacts(NamedTuple):
    """Of one connection. `version`: 0x0304 is TLS 1.3. `cipher_suite`: its number. `client_name`: the distinguished
    name of the client's certificate (RFC 4514). `client_chain`: that certificate and those that were sent with it, in
    PEM; before Python 3.13 that certificate alone. None and () if the client has none, or was not asked for one."""

    version: int | None
    cipher_suite: int | None
    client_name: str | None
    client_chain: tuple[str, ...]


def facts_of(tls: ssl.SSLObject) -> TlsFacts:
    """Return the facts of a connection whose handshake is done."""
    version = _VERSIONS.get(tls.version() or "")
    certificate = tls.getpeercert(True)
    if certificate is None:
        return TlsFacts(version, _number_of_cipher(tls), None, ())
    subject: Any = (tls.getpeercert() or {}).get("subject", ())
    chain = tuple(map(ssl.DER_cert_to_PEM_cert, _chain(tls, certificate)))
    return TlsFacts(version, _number_of_cipher(tls), distinguished_name(subject), chain)


def distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Return the text of a name that is given as `getpeercert` gives it. The last part comes first (RFC 4514, 2.1)."""
    return ",".join("+".join(_attribute(*each) for each in part) for part in reversed(subject))


def _attribute(kind: str, value: str) -> str:
    text = value.translate(_ESCAPED)
    if text.startswith((" ", "#")):
        text = f"\\{text}"
    if text.endswith(" ") and len(value) > 1:
        text = f"{text[:-1]}\\ "
    return f"{_SHORT.get(kind, kind)}={text}"


def _number_of_cipher(tls: ssl.SSLObject) -> int | None:
    chosen = tls.cipher()
    if chosen is None:
        return None
    # OpenSSL's numbers have a prefix of two bytes
    numbers: dict[Any, Any] = {each["name"]: each["id"] & 0xFFFF for each in tls.context.get_ciphers()}
    return numbers.get(chosen[0])


def _chain(tls: ssl.SSLObject, certificate: bytes) -> list[bytes]:
    """Return the client's certificate and those that it has sent with it, which a session that is continued does not
    have any more."""
    get_chain = getattr(tls, "get_unverified_chain", None)
    return (get_chain() if get_chain is not None else None) or [certificate]
