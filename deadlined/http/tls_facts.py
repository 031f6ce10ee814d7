"""What TLS has agreed on with a client, and who the client is by its certificate."""

from __future__ import annotations

import ssl
from typing import Final, NamedTuple

from .certificate import name_of

# the numbers of RFC 8446 and the RFCs before it
_VERSIONS: Final = {"TLSv1": 0x0301, "TLSv1.1": 0x0302, "TLSv1.2": 0x0303, "TLSv1.3": 0x0304}

# of the cipher suites of the contexts that were asked, by OpenSSL's names; asking one takes 30 us
_numbers: Final[dict[str, int]] = {}


class TlsFacts(NamedTuple):
    """Of one connection. `version`: 0x0304 is TLS 1.3. `cipher_suite`: its number. `client_name`: the distinguished
    name of the client's certificate (RFC 4514), "" if it cannot be read. `client_chain`: that certificate and those
    that were sent with it, in PEM; before Python 3.13 that certificate alone. They are None and () if the client has no
    certificate, or was not asked for one."""

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
    chain = tuple(map(ssl.DER_cert_to_PEM_cert, _chain(tls, certificate)))
    return TlsFacts(version, _number_of_cipher(tls), name_of(certificate), chain)


def _number_of_cipher(tls: ssl.SSLObject) -> int | None:
    chosen = tls.cipher()
    if chosen is None:
        return None
    name = chosen[0]
    if name not in _numbers:
        # OpenSSL's numbers have a prefix of two bytes
        _numbers.update((each["name"], each["id"] & 0xFFFF) for each in tls.context.get_ciphers())
    return _numbers.get(name)


def _chain(tls: ssl.SSLObject, certificate: bytes) -> list[bytes]:
    """Return the client's certificate and those that it has sent with it. A session that is continued has only the
    first."""
    get_chain = getattr(tls, "get_unverified_chain", None)
    return (get_chain() if get_chain is not None else None) or [certificate]
