"""The certificate of a client, as an upstream is told of it: the field Client-Cert (RFC 9440)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ..http import TlsFacts

CLIENT_CERT: Final = b"client-cert"
CLIENT_CERT_CHAIN: Final = b"client-cert-chain"


def certificate_of(tls: TlsFacts | None) -> bytes:
    """Return the value of Client-Cert for a client, b"" if it has no certificate, or there is no TLS."""
    return _structured(tls.client_chain[0]) if tls is not None and tls.client_chain else b""


# most clients have more than one connection
@lru_cache(maxsize=1024)
def _structured(pem: str) -> bytes:
    """Return a certificate as a byte sequence of structured fields (RFC 8941, 3.3.5): its base64 between colons."""
    lines = pem.strip().split("\n")
    return f":{''.join(lines[1:-1])}:".encode("ascii")
