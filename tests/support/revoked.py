"""Lists of revoked certificates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization


def revoked(
    authority: trustme.CA,
    *certificates: trustme.LeafCert | trustme.CA,
    begins: datetime | None = None,
    ends: datetime | None = None,
) -> bytes:
    """Return a list in PEM, signed by the authority. It is valid from yesterday until tomorrow, or from `begins` until
    `ends`."""
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes()).subject
    now = datetime.now(UTC)
    day = timedelta(days=1)
    builder = x509.CertificateRevocationListBuilder(issuer, begins or now - day, ends or now + day)
    for certificate in certificates:
        pem = certificate.cert_pem if isinstance(certificate, trustme.CA) else certificate.cert_chain_pems[0]
        number = x509.load_pem_x509_certificate(pem.bytes()).serial_number
        entry = x509.RevokedCertificateBuilder(number, now - timedelta(hours=1)).build()
        builder = builder.add_revoked_certificate(entry)
    key = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    made = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]  # an authority's keys can all sign
    return made.public_bytes(serialization.Encoding.PEM)
