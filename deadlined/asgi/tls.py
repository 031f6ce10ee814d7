"""`scope["extensions"]["tls"]`: ASGI's TLS extension, version 0.2."""

from __future__ import annotations

from typing import Any

from ..http import TlsFacts


def tls_extension(facts: TlsFacts) -> dict[str, Any]:
    """Return the extension for a request. The server's own certificate is not told: `ssl` does not say which one of
    a context was sent. A client whose certificate is not valid does not get as far as a request."""
    return {
        "server_cert": None,
        "client_cert_chain": facts.client_chain,
        "client_cert_name": facts.client_name,
        "client_cert_error": None,
        "tls_version": facts.version,
        "cipher_suite": facts.cipher_suite,
    }
