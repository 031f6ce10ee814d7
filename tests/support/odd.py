"""Certificates that OpenSSL accepts, and that Python's `getpeercert()` cannot show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import ExtensionOID, NameOID

from .der import element


def odd_certificate(authority: trustme.CA, part: str) -> trustme.LeafCert:
    """Return a certificate of "Ann". `part`: "name", of which bits are a part; or "address", which is in Latin-1."""
    names = [x509.NameAttribute(NameOID.COMMON_NAME, "Ann")]
    if part == "name":
        names.append(x509.NameAttribute(NameOID.X500_UNIQUE_IDENTIFIER, b"\0\1", _ASN1Type.BitString))  # type: ignore[arg-type]
    builder = _of(authority).subject_name(x509.Name(names))
    if part == "address":
        addresses = element(0x30, element(0x81, "jörg@shop.example".encode("latin-1")))
        extension = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, addresses)
        builder = builder.add_extension(extension, critical=False)
    return _signed(authority, builder)


def _of(authority: trustme.CA) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().issuer_name(x509.load_pem_x509_certificate(authority.cert_pem.bytes()).subject)
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _signed(authority: trustme.CA, builder: x509.CertificateBuilder) -> trustme.LeafCert:
    own = ec.generate_private_key(ec.SECP256R1())
    key = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    identifier = x509.load_pem_x509_certificate(authority.cert_pem.bytes()).extensions
    of_key = identifier.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(of_key), critical=False
    )
    made = builder.public_key(own.public_key()).sign(key, hashes.SHA256())  # type: ignore[arg-type]  # they all sign
    pem = own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return trustme.LeafCert(pem, made.public_bytes(serialization.Encoding.PEM), [])
